import json
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_model
from torch import nn

import feature_alignment as fa
from feature_alignment.__main__ import main
from feature_alignment.errors import UserError
from feature_alignment.instrument import checkpoints
from feature_alignment.instrument.checkpoints import find_checkpoints, load_parameters
from feature_alignment.instrument.record_page import record_page
from feature_alignment.training.probes import Measurement, Row

MODULE = """
import torch
from torch import nn

def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

def wider():
    return nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2))

def batch():
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()

def named():
    x, y = batch()
    return {"input": x, "labels": y}

def alone():
    return batch()[0]

def array():
    return batch()[0].numpy()

def few():
    return torch.ones(10, 4), torch.arange(2)

def words():
    return torch.ones(10, 4), ["a"] * 10

def labels_with_an_index():
    import pandas as pd
    x, y = batch()
    return x, pd.Series(y.numpy(), index=range(3, 13))

def doubles():
    return torch.ones(10, 4, dtype=torch.float64), None

def lists():
    return [[1.0, 2.0, 3.0, 4.0]], None

def nothing():
    return None

class Pair(nn.Sequential):
    def forward(self, x):
        return x, super().forward(x)

def pair():
    return Pair(*build())

class Picky(nn.Sequential):
    def forward(self, x):
        raise IndexError("no row 7")

def picky():
    return Picky(*build())

class Shifted(nn.Sequential):
    def forward(self, x, shift):
        return super().forward(x + shift)

def shifted():
    return Shifted(*build())

def with_a_shift():
    x, y = batch()
    return {"x": x, "shift": torch.zeros(4)}, y
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with a module and the checkpoints of a training, as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "my_study", raising=False)
    (tmp_path / "my_study.py").write_text(MODULE)
    import my_study

    model, (x, y) = my_study.build(), my_study.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    (tmp_path / "ckpt").mkdir()
    for step in range(11):
        if step % 5 == 0:
            torch.save({"model": model.state_dict(), "lr": 0.3}, f"ckpt/step_{step}.pt")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return my_study


def measure(*more, model="build", data="batch", pattern="ckpt/*.pt", out="out"):
    arguments = ["--data", f"my_study:{data}", "--checkpoints", pattern, "--out", out, *more]
    main(["measure", f"my_study:{model}", *arguments])


def test_checkpoints_are_measured_and_told_on_a_page(study, tmp_path):
    measure("--measure", "kernel", "features", "adapted")
    frame = pd.read_csv("out/metrics.csv", dtype={"layer": str})
    model, (x, y) = study.build(), study.batch()
    start = fa.copy_parameters(model)
    checkpoints.load_parameters(model, tmp_path / "ckpt" / "step_10.pt")
    last = frame[frame["step"] == 10].set_index(["layer", "metric"])["value"]
    assert last["all", "label_alignment"] == pytest.approx(fa.tangent_kernel(model, x).alignment(y))
    nfc = fa.features(model, x, start)["0"].correlations()
    assert last["0", "centred_nfc"] == pytest.approx(nfc["centred_nfc"])
    assert sorted(frame["step"].unique()) == [0, 5, 10]

    main(["report", "out"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Alignment record of <code>Sequential</code>" in page
    assert "data:image/png;base64," in page
    assert "<code>effective_rank</code>" in page


@pytest.mark.parametrize("position", ["1", "-1"])
def test_the_output_may_be_given_by_its_position(study, position):
    measure(out="plain")
    measure("--output", position, model="pair")
    assert pd.read_csv("out/metrics.csv").equals(pd.read_csv("plain/metrics.csv"))


def test_samples_may_have_names_or_no_labels(study):
    for data in ("batch", "named", "alone", "array"):
        measure("--measure", "kernel", data=data, out=data)
    batch, named, alone, array = (
        pd.read_csv(f"{data}/metrics.csv") for data in ("batch", "named", "alone", "array")
    )
    pd.testing.assert_frame_equal(named, batch)
    shared = batch[batch["metric"].isin(alone["metric"])].reset_index(drop=True)
    assert "label_alignment" in set(batch["metric"]) - set(shared["metric"])
    pd.testing.assert_frame_equal(alone, shared)
    pd.testing.assert_frame_equal(array, alone)


def test_kernels_may_be_of_some_parameters(study, tmp_path):
    for only in ("trainable", "0"):
        measure("--only", only, "--measure", "kernel", out=only)
    model, (x, y) = study.build(), study.batch()
    checkpoints.load_parameters(model, tmp_path / "ckpt" / "step_10.pt")
    for only in ("trainable", "0"):
        frame = pd.read_csv(f"{only}/metrics.csv").query("step == 10 and layer == 'all'")
        expected = fa.tangent_kernel(model, x, only=None if only == "trainable" else [only])
        found = frame.set_index("metric")["value"]["label_alignment"]
        assert found == pytest.approx(expected.alignment(y))


def test_what_holds_samples_and_what_they_are_called_may_be_given(study):
    measure(out="plain")
    measure("--inputs", "x", "--split", "test", model="shifted", data="with_a_shift")
    found, plain = pd.read_csv("out/metrics.csv"), pd.read_csv("plain/metrics.csv")
    assert set(found["split"]) == {"test"}
    pd.testing.assert_frame_equal(found.drop(columns="split"), plain.drop(columns="split"))


def test_a_quoted_pattern_may_begin_with_the_home(study, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    measure(pattern="~/ckpt/*.pt")
    assert sorted(pd.read_csv("out/metrics.csv")["step"].unique()) == [0, 5, 10]


def test_a_killed_measurement_goes_on(study, monkeypatch):
    measure(out="whole")
    loaded = []

    def counted(model, file):
        if len(loaded) == 2:  # the start, and step 5
            raise KeyboardInterrupt
        loaded.append(file.name)
        load(model, file)

    load = checkpoints.load_parameters
    monkeypatch.setattr(checkpoints, "load_parameters", counted)
    with pytest.raises(SystemExit, match="130"):
        measure()
    monkeypatch.setattr(checkpoints, "load_parameters", load)
    measure()
    assert pd.read_csv("out/metrics.csv").equals(pd.read_csv("whole/metrics.csv"))


def test_a_record_is_written_by_one_process_at_a_time(study):
    told = "--out: out is written to by another process; wait"
    with checkpoints.held(Path("out"), None), pytest.raises(SystemExit, match=told):
        measure()
    with pytest.raises(UserError, match=told), checkpoints.held(Path("out"), 1):  # as of another
        pytest.fail("the record has been changed since")
    assert not list(Path("out").glob("[!.]*"))
    measure()
    assert Path("out/metrics.csv").exists()


def test_safetensors_and_wrapped_names_are_read(study, tmp_path):
    from safetensors.torch import save_file

    model = study.build()
    for prefix in ("module.", "model._orig_mod.", "_orig_mod.module."):
        save_file({f"{prefix}{k}": v + 1 for k, v in model.state_dict().items()}, "a7.safetensors")
        other = study.build()
        checkpoints.load_parameters(other, tmp_path / "a7.safetensors")
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine + 1, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "biuld"}, "model: my_study has no function 'biuld'; did you mean 'build'"),
        ({"model": "nothing"}, "returned a NoneType, not an nn.Module"),
        ({"model": "wider"}, r"'0.weight' has the shape \(6, 4\), the model's is \(9, 4\)"),
        ({"data": "nothing"}, "--data: my_study:nothing returned a NoneType"),
        ({"pattern": "nix/*.pt"}, "no file matches"),
        ({"pattern": "*.py"}, "ends in none of"),
        (
            {"pattern": "broken1.pt"},
            r"\(UnpicklingError: no file of torch.save, or cut off\); save model\.state_dict\(\)",
        ),
        ({"pattern": "whole5.pt"}, r"\(UnpicklingError: a whole model, or more\); save model"),
        ({"pattern": "list2.pt"}, "holds a list; a state_dict is needed"),
        ({"pattern": "less3.pt"}, "there is no '2.bias'"),
        (
            {"pattern": "net6.pt"},
            r"holds no parameters, but 'net', 'loss'; .* of state_dict, model",
        ),
        ({"pattern": "more4.pt"}, "'other' is not in the model"),
        ({"pattern": "nameless.pt"}, "has no number in its name"),
        ({"pattern": "twice*/step7.pt"}, "both have step 7"),
        ({"data": "few"}, "2 labels for 10 samples"),
        ({"data": "words"}, "y: a list that is not an array of numbers; give class numbers"),
        ({"data": "doubles"}, "x: torch.float64, where the model's parameters are torch.float32"),
        (
            {"options": ["--checkpoints", "ckpt/step_0.pt", "ckpt/step_10.pt"]},
            r"--checkpoints: takes one pattern, not ckpt/step_10\.pt too; quote it, as 'ckpt/\*",
        ),
        ({"pattern": "~nobody-of-this-name/*.pt"}, "--checkpoints: '~nobody.*is not a pattern of"),
        ({"pattern": ""}, "--checkpoints: '' is not a pattern of files"),
        ({"pattern": "/"}, "--checkpoints: '/' is not a pattern of files"),
        ({"pattern": "**"}, "--checkpoints: .* ends in none of"),
        ({"model": "picky"}, r"--model: it raised IndexError no row 7$"),
        pytest.param(
            {"pattern": "ckpt/**.pt"},
            r"--checkpoints: 'ckpt/\*\*.pt' is not a pattern of files",
            marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="reads it as *.pt"),
        ),
        ({"data": "lists"}, "x: there is no tensor"),
        ({"options": ["--output", "logits"]}, "logits"),
        ({"options": ["--only", "layer9"]}, "layer9"),
    ],
)
def test_mistakes_are_one_sentence(study, tmp_path, changes, message):
    state = study.build().state_dict()
    (tmp_path / "broken1.pt").write_bytes(b"no weights")
    torch.save([1], "list2.pt")
    torch.save(study.build(), "whole5.pt")
    torch.save({k: v for k, v in state.items() if k != "2.bias"}, "less3.pt")
    torch.save({"net": state, "loss": 0.5}, "net6.pt")
    torch.save({**state, "other": torch.ones(1)}, "more4.pt")
    for file in ("nameless.pt", "twice1/step7.pt", "twice2/step7.pt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        torch.save(state, file)
    with pytest.raises(SystemExit, match=message):
        measure(*changes.pop("options", []), **changes)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.csv", None, r"metrics\.csv: is not the table that about\.json tells of"),
        ("metrics.csv", b"", r"metrics\.csv: is not the table that about\.json tells of"),
        ("about.json", None, r"about\.json: is damaged; save the record again"),
        ("about.json", b"{}", r"about\.json: is damaged; save the record again"),
    ],
)
def test_no_page_is_made_of_a_damaged_record(study, tmp_path, name, content, message):
    measure()
    file = tmp_path / "out" / name
    file.write_bytes(file.read_bytes()[:-5] if content is None else content)
    with pytest.raises(SystemExit, match=message):
        main(["report", "out"])
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_lock_is_not_opened_through_a_link(study, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    Path("out").mkdir()
    Path("out/.lock").symlink_to(mine)
    with pytest.raises(SystemExit, match=r"out/\.lock: .*; give one that can be read or written"):
        measure()
    assert mine.read_text() == "kept"


def test_metrics_may_have_numbers_as_names(tmp_path):
    def probe(step, model):
        return Measurement([Row("all", "train", "007", 0.5)])

    fa.Monitor(nn.Linear(3, 2), torch.ones(4, 3), measure=[probe]).save(tmp_path)
    assert "007" in record_page(tmp_path)


EDITED = [{"seconds": None}, {"seconds": float("inf")}, {"problems": 3}, {"problems": ["x"]}]


@pytest.mark.parametrize("change", [*EDITED, {"versions": "x"}, None])
def test_no_page_is_made_of_a_record_that_was_edited(study, tmp_path, change):
    measure()
    file = tmp_path / "out" / "about.json"
    about = json.loads(file.read_text())
    about = {**about, **change} if change else {"table_sha256": about["table_sha256"]}
    file.write_text(json.dumps(about))
    with pytest.raises(SystemExit, match=r"about\.json: .*is damaged; save the record again"):
        main(["report", "out"])


@pytest.mark.parametrize("name", ["checkpoints.json", "state.pt"])
def test_a_damaged_record_is_not_continued(study, tmp_path, name):
    measure()
    (tmp_path / "out" / name).write_bytes(b"\xff")
    with pytest.raises(SystemExit, match="is damaged"):
        measure()


def test_a_record_beside_the_checkpoints_goes_on(study):
    measure(out="ckpt", pattern="ckpt/*.pt")
    before = pd.read_csv("ckpt/metrics.csv")
    measure(out="ckpt", pattern="ckpt/*.pt")
    assert pd.read_csv("ckpt/metrics.csv").equals(before)


def test_a_checkpoint_that_comes_later_stands_in_its_place(study, tmp_path):
    measure(out="whole")
    (tmp_path / "ckpt" / "step_5.pt").rename("step_5.pt")
    measure()
    (tmp_path / "step_5.pt").rename("ckpt/step_5.pt")
    measure()
    assert pd.read_csv("out/metrics.csv").equals(pd.read_csv("whole/metrics.csv"))


def test_kernel_and_features_are_measured_from_the_least_step_on(study, tmp_path):
    measure(pattern="ckpt/step_[15]*.pt")  # of which step_10.pt is the first by name
    frame = pd.read_csv("out/metrics.csv")
    assert {"effective_rank", "nfc"} <= set(frame["metric"])
    assert (frame.query("metric == 'weight_change' and step == 5")["value"] == 0).all()
    assert (frame.query("metric == 'weight_change' and step == 10")["value"] > 0).all()


def test_a_checkpoint_that_was_away_is_still_known(study, tmp_path):
    measure()
    (tmp_path / "ckpt" / "step_5.pt").unlink()
    measure()
    torch.save(torch.load("ckpt/step_10.pt"), "ckpt/step_5.pt")
    with pytest.raises(SystemExit, match="the record of another ckpt/step_5"):
        measure()


def test_the_page_tells_first_last_least_and_most(tmp_path):
    values = iter([3.0, 1.0, 4.0, 2.0])

    def probe(step, model):
        return Measurement([Row("None", "train", "mine", next(values))])

    monitor = fa.Monitor(nn.Linear(3, 2), torch.ones(4, 3), measure=[probe])
    for _ in range(3):
        monitor.step()
    monitor.save(tmp_path)
    main(["report", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    cells = "".join(f'<td class="number">{value}</td>' for value in (3, 2, 1, 4))
    assert f"<td>None</td><td>train</td>{cells}" in page


def test_labels_may_have_an_index(study):
    measure(out="plain")
    measure(data="labels_with_an_index")
    assert pd.read_csv("out/metrics.csv").equals(pd.read_csv("plain/metrics.csv"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_study", "model: 'my_study' is not of the form module:function"),
        (":build", "model: ':build' is not of the form module:function"),
        (".my_study:build", "model: '.my_study:build' is not of the form module:function"),
        ("my_study.py:build", "no module 'my_study.py' here.*; leave out .py: my_study:build"),
        ("nosuch:f", "model: there is no module 'nosuch' here"),
        ("nosuch.more:f", "model: there is no module 'nosuch.more' here"),
        ("torch.nn:Linear", "model: torch.nn:Linear cannot be called without arguments"),
    ],
)
def test_what_names_no_function_is_one_sentence(study, target, message):
    options = ["--data", "my_study:batch", "--checkpoints", "ckpt/*.pt", "--out", "out"]
    with pytest.raises(SystemExit, match=message):
        main(["measure", target, *options])


def test_steps_are_told_by_their_word(tmp_path):
    names = ["epoch=0-step=10.ckpt", "epoch=0-step=20-v1.ckpt", "step_30_of_90.ckpt"]
    for name in names:
        (tmp_path / name).touch()
    found = checkpoints.find_checkpoints(str(tmp_path / "*.ckpt"))
    assert {step: file.name for step, file in found.items()} == dict(
        zip((10, 20, 30), names, strict=True)
    )


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["Epoch1_loss3.pt", "Epoch2_loss2.pt"], [1, 2]),
        (["Step100_acc85.pt", "STEP200_acc91.pt"], [100, 200]),
        (["steps_10_of_500.pt", "steps_20_of_500.pt"], [10, 20]),
        (["100steps_seed3.pt", "200-Steps-seed3.pt"], [100, 200]),
        (["epoch3_step100.pt", "epoch4_step200.pt"], [100, 200]),
    ],
)
def test_steps_are_told_by_their_word_however_it_is_written(tmp_path, names, steps):
    for name in names:
        (tmp_path / name).touch()
    found = checkpoints.find_checkpoints(str(tmp_path / "*.pt"))
    assert {step: file.name for step, file in found.items()} == dict(zip(steps, names, strict=True))


def test_what_a_killed_process_left_is_no_checkpoint(tmp_path):
    for name in ("step10.pt", ".31709.state.pt"):
        (tmp_path / name).touch()
    assert list(checkpoints.find_checkpoints(str(tmp_path / "*.pt"))) == [10]


def test_a_loss_in_a_name_is_no_step(tmp_path):
    names = ["epoch=00-loss=0.55.ckpt", "epoch=01-loss=0.32.ckpt", "epoch=02-loss=2.5e-05.ckpt"]
    for name in names:
        (tmp_path / name).touch()
    found = checkpoints.find_checkpoints(str(tmp_path / "*.ckpt"))
    assert {step: file.name for step, file in found.items()} == dict(enumerate(names))


def test_a_modules_own_state_is_loaded(tmp_path):
    class Own(torch.nn.Linear):
        def get_extra_state(self):
            return {"scale": 2}

        def set_extra_state(self, state):
            self.scale = state["scale"]

    torch.save(Own(2, 2).state_dict(), tmp_path / "a1.pt")
    model = Own(2, 2)
    checkpoints.load_parameters(model, tmp_path / "a1.pt")
    assert model.scale == 2


def test_the_record_of_another_training_is_not_continued(study, tmp_path):
    measure()
    with pytest.raises(SystemExit, match="a training with another start"):
        measure(pattern="ckpt/step_1*.pt")
    torch.save(torch.load("ckpt/step_10.pt"), "ckpt/step_5.pt")
    with pytest.raises(SystemExit, match="the record of another ckpt/step_5"):
        measure()
    with pytest.raises(SystemExit, match="holds a record already"):
        measure("--measure", "features")
    with pytest.raises(SystemExit, match="there is no such file"):
        main(["report", "nowhere"])


def test_the_papers_commands_ask_for_their_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "feature_alignment.pipeline.command_line", None)
    monkeypatch.delattr("feature_alignment.pipeline.command_line", raising=False)
    with pytest.raises(SystemExit, match=r"pip install 'feature-alignment\[pipeline\]'"):
        main(["run", "key2030/coin"])


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["epoch=0-val_loss=0.5", "epoch=1-val_loss=2e-05", "epoch=2-val_loss=1e-06"], [0, 1, 2]),
        (["step=100-lr=1e-3", "step=200-lr=1.5e-3"], [100, 200]),
        (["iter_1,000", "iter_12,500"], [1000, 12500]),
        (["epoch=03-acc=.5", "epoch=04-acc=.75"], [3, 4]),
        (["epoch=0-val_acc=31", "epoch=1-val_acc=75", "epoch=2-val_acc=62"], [0, 1, 2]),
        (["iter100_acc91", "iter200_acc95", "iter300_acc93"], [100, 200, 300]),
        (["ckpt.100", "ckpt.200"], [100, 200]),
    ],
)
def test_exponents_are_no_steps(tmp_path, names, steps):
    for name in names:
        (tmp_path / f"{name}.pt").touch()
    assert sorted(find_checkpoints(str(tmp_path / "*.pt"))) == steps


@pytest.mark.parametrize("folder", ["checkpoint-500", "global_step500", "500", "epoch_500"])
def test_a_folders_step_is_that_of_its_file(tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "model.pt").touch()
    assert list(find_checkpoints(str(tmp_path / "*" / "*.pt"))) == [500]


def test_another_number_of_a_folder_is_no_step(tmp_path):
    (tmp_path / "run3").mkdir()
    (tmp_path / "run3" / "last.pt").touch()
    with pytest.raises(UserError, match=r"last\.pt has no number in its name"):
        find_checkpoints(str(tmp_path / "run3" / "*.pt"))


def test_only_the_beginning_of_a_name_is_a_wrappers(tmp_path):
    inner = torch.nn.ModuleDict({"submodule": torch.nn.Linear(2, 1)})
    saved = {f"module.{name}": value for name, value in inner.state_dict().items()}
    torch.save(saved, tmp_path / "a1.pt")
    model = torch.nn.ModuleDict({"submodule": torch.nn.Linear(2, 1)})
    checkpoints.load_parameters(model, tmp_path / "a1.pt")
    assert torch.equal(model["submodule"].weight, inner["submodule"].weight)


@pytest.mark.parametrize("letter", "kKmM")
def test_thousands_by_a_letter_are_refused(tmp_path, letter):
    (tmp_path / f"ckpt_2{letter}.pt").touch()
    with pytest.raises(
        UserError, match=rf"2{letter} is not a step in digits; name it as step1000\.pt"
    ):
        find_checkpoints(str(tmp_path / "*.pt"))


def test_a_checkpoint_with_one_of_two_tied_weights_is_read(tmp_path):
    def tied():
        model = nn.ModuleDict({"first": nn.Linear(3, 3), "last": nn.Linear(3, 3)})
        model["last"].weight = model["first"].weight
        return model

    trained, model = tied(), tied()
    save_model(trained, str(tmp_path / "step1.safetensors"))
    load_parameters(model, tmp_path / "step1.safetensors")
    assert torch.equal(model["last"].weight, trained["first"].weight)


def test_the_version_of_a_file_is_no_step(tmp_path):
    for name in ("model-12-v1.ckpt", "model-13.ckpt"):
        (tmp_path / name).touch()
    assert sorted(find_checkpoints(str(tmp_path / "*"))) == [12, 13]
