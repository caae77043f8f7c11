import subprocess
import sys
from pathlib import Path

import pytest

from feature_alignment.data import registry
from feature_alignment.data.registry import DATASETS, check_options, dataset_info
from feature_alignment.errors import UserError


def test_registry_imports_no_numerical_package():
    code = (
        "import sys; before = set(sys.modules); import feature_alignment.data.registry; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    source = Path(__file__).parents[2] / "src"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=source
    )
    assert "feature_alignment" in run.stdout
    assert not any(
        f"'{package}'" in run.stdout for package in ("numpy", "torch", "torchvision", "PIL")
    )


def test_names_are_keys_and_class_names_are_as_many_as_classes():
    for name, info in DATASETS.items():
        assert info.name == name
        assert (info.kind == "text") == (not info.shape) == (not info.classes)
        assert info.class_names is None or len(info.class_names) == info.classes


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UserError, match=r"datasets\.cifar: no such data set; did you mean 'cifar1"):
        dataset_info("cifar")


@pytest.mark.parametrize("name", DATASETS)
def test_defaults_are_accepted(name):
    check_options(name, {})
    check_options(name, {"source": "embedded", "path": None})
    check_options(name, {"source": "embedded", "path": "data"})


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A working folder that holds the folder `there` and the file `a.npz`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "a.npz").touch()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mnist", {"source": "npzz"}, r"mnist\.source: found 'npzz'; did you mean 'npz'\?"),
        ("shakespeare", {"source": "npz"}, r"allowed: download, embedded, file"),
        ("mnist", {"sorce": "npz"}, r"mnist\.sorce: no such key; did you mean 'source'\?"),
        ("mnist", {"source": "npz"}, r"mnist\.path: missing; source 'npz' needs the path of a"),
        (
            "mnist",
            {"source": "imagefolder", "path": None},
            r"needs the path of a folder with train",
        ),
        ("shakespeare", {"source": "file"}, r"path: missing; .* UTF-8 text file; set it or use"),
        ("mnist", {"source": "npz", "path": "x.npz"}, r"no such file 'x\.npz'"),
        ("mnist", {"source": "npz", "path": "~/x.npz"}, r"'~/x\.npz' \(~ and variables are taken"),
        ("mnist", {"path": "a.npz"}, r"'a\.npz', but source 'embedded' reads no files; set data"),
        ("mnist", {"source": "imagefolder", "path": "x"}, r"no such folder 'x'"),
        ("mnist", {"source": "npz", "path": "there"}, r"'there' is no file, but source 'npz'"),
        ("mnist", {"source": "imagefolder", "path": "a.npz"}, r"'a\.npz' is no folder, but source"),
        (
            "mnist",
            {"source": "torchvision", "path": "ther"},
            r"mnist\.path: no such folder 'ther'; .*; create it first, or leave path out",
        ),
        ("shakespeare", {"source": "download", "path": "ther"}, r"no such folder 'ther'"),
        ("mnist", {"source": "torchvision", "path": "a.npz"}, r"'a\.npz' is no folder, but source"),
        ("mnist", {"source": "npz", "path": 3}, r"path: found 3, where a path"),
        ("mnist", {"source": "npz", "path": ""}, r"path: found '', where a path"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(name, options, message, there):
    with pytest.raises(UserError, match=message) as caught:
        check_options(name, options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_existing_paths_are_accepted(there):
    check_options("mnist", {"source": "imagefolder", "path": "there"})
    check_options("mnist", {"source": "npz", "path": "a.npz"})
    check_options("mnist", {"source": "torchvision", "path": "there"})
    check_options("mnist", {"source": "torchvision", "path": "data"})  # the default is made
    check_options("mnist", {"source": "torchvision"})


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"source": "npz", "path": "a.npz"}, "open"),
        ({"source": "imagefolder", "path": "there"}, "scandir"),
    ],
)
def test_what_must_not_be_read_is_told_before_any_job(options, name, there, monkeypatch):
    def refuse(path, *arguments):
        raise PermissionError(13, "Permission denied", str(path))

    owner = Path if name == "open" else registry.os
    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(UserError, match=r"path: '\S+' cannot be read \(Permission denied\); check"):
        check_options("mnist", options)
