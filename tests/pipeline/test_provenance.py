"""What is recorded of the checkout that makes a result."""

import shutil
import subprocess

from feature_alignment.pipeline import provenance


def test_what_is_made_is_no_edit_and_what_makes_it_is(monkeypatch, tmp_path):
    module = tmp_path / "src" / "module.py"
    for file in (module, tmp_path / "results" / "README.md", tmp_path / "figures" / "README.md"):
        file.parent.mkdir()
        file.write_text("a = 1\n")
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init"], ["add", "."], ["commit", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    monkeypatch.setattr(provenance, "__file__", str(module))
    shutil.rmtree(tmp_path / "results")
    shutil.rmtree(tmp_path / "figures")
    assert provenance.git_state()["dirty"] is False
    module.write_text("a = 2\n")
    assert provenance.git_state()["dirty"] is True
    module.write_text("a = 1\n")
    (tmp_path / "notes.txt").touch()
    assert provenance.git_state()["dirty"] is False
    (tmp_path / "src" / "paper").mkdir()
    (tmp_path / "src" / "paper" / "new.py").touch()
    assert provenance.git_state()["dirty"] is True
