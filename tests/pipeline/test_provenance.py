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


def test_a_checkout_of_another_user_is_told(monkeypatch, tmp_path):
    module = tmp_path / "src" / "feature_alignment" / "pipeline" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.touch()
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init"], ["add", "."], ["commit", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    monkeypatch.setattr(provenance, "__file__", str(module))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    state = provenance.git_state()
    assert state["commit"]
    assert state["dirty"] is False


def test_in_a_hook_of_another_repository_the_own_checkout_is_told(monkeypatch, tmp_path):
    for name in ("own", "other"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "module.py").write_text(name)
        git = ["git", "-C", tmp_path / name, "-c", "user.name=a", "-c", "user.email=a@b"]
        for arguments in (["init"], ["add", "."], ["commit", "-m", name]):
            subprocess.run([*git, *arguments], check=True, capture_output=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "own" / "src" / "module.py"))
    alone = provenance.git_state()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    assert provenance.git_state() == alone
    assert alone["dirty"] is False


def test_elapsed_and_working_time_are_told_apart():
    told = provenance.provenance(10.00049, 2.5, {"training": 7.25})
    assert (told["wall_seconds"], told["cpu_seconds"]) == (10.0, 2.5)
    assert told["seconds_by_part"] == {"training": 7.25}
