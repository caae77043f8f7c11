import os
import shutil
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

import feature_alignment as fa
from feature_alignment.errors import UserError
from feature_alignment.instrument import callbacks as module

pytestmark = [
    pytest.mark.filterwarnings("ignore::Warning"),  # of the packages' own
    pytest.mark.slow,
]


def lightning():
    """The package, which takes seconds to import, by the tests that need it alone."""
    return pytest.importorskip("lightning")


def transformers():
    """Likewise."""
    return pytest.importorskip("transformers")


def small_network():
    class Module(lightning().LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))

        def forward(self, x):
            return self.network(x)

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def samples():
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long()


def batches():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples()), 4)


def fit(folder, steps, callbacks, resume=None, model=None):
    model = small_network() if model is None else model
    trainer = lightning().Trainer(
        max_steps=steps,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=folder,
        accumulate_grad_batches=2,
    )
    trainer.fit(model, batches(), ckpt_path=resume)
    return model, trainer


def test_lightning_can_be_measured_in_another_precision(tmp_path):
    callbacks = [
        fa.LightningMonitor(*samples(), every=2, name=name, dtype=dtype)
        for name, dtype in (("single", None), ("double", torch.float64))
    ]
    fit(tmp_path, 4, [*callbacks])  # to which Lightning adds its own
    single, double = (callback.monitor.frame() for callback in callbacks)
    pd.testing.assert_frame_equal(single, double, rtol=1e-3, atol=1e-4)
    assert not single.equals(double)
    assert not callbacks[1].monitor.problems


def test_lightning_trains_to_the_same_bits_and_the_record_goes_on(tmp_path):
    callback = fa.LightningMonitor(*samples(), every=2, folder=tmp_path / "record")
    plain, _ = fit(tmp_path, 6, [])
    model, trainer = fit(tmp_path, 6, [callback])
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    assert callback.monitor.measured == {0, 2, 4, 6}
    assert (tmp_path / "record" / "metrics.csv").exists()

    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = fa.LightningMonitor(*samples(), every=2)
    fit(tmp_path, 10, [again], resume=tmp_path / "last.ckpt")
    assert again.monitor.measured == {0, 2, 4, 6, 8, 10}
    earlier = again.monitor.frame().query("step <= 6").reset_index(drop=True)
    assert earlier.equals(callback.monitor.frame())

    fit(tmp_path, 4, [again])  # of another model, from its start
    assert again.monitor.measured == {0, 2, 4}


def test_a_measurement_leaves_what_forward_passes_log_alone(tmp_path):
    def logged(callbacks):
        model = small_network()
        forward = type(model).forward

        class Other(nn.Identity):
            def __init__(self):
                super().__init__()
                self.log_dict = {}

        class Telling(type(model)):
            def forward(self, x):
                self.network[1].log_dict["seen"] = len(x)
                outputs = forward(self, x)
                self.log("output", outputs.mean(), on_step=True, on_epoch=True)
                self.log_dict({"largest": outputs.max()}, on_step=True, on_epoch=True)
                return outputs

        model.__class__, model.network[1] = Telling, Other()
        told = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning().Trainer(
            max_steps=6, callbacks=callbacks, accelerator="cpu", default_root_dir=tmp_path, **told
        )
        trainer.fit(model, batches())
        assert "log" not in vars(model)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}

    callback = fa.LightningMonitor(*samples(), every=2)
    assert logged([callback]) == logged([])
    assert callback.monitor.measured == {0, 2, 4, 6}


def test_a_function_in_the_place_of_a_models_log_stays_after_a_measurement():
    model, noted = small_network(), []
    model.log = noted.append
    fa.LightningMonitor(samples()[0]).on_train_start(SimpleNamespace(global_step=0), model)
    model.log("later")
    assert noted == ["later"]


def test_lightnings_record_goes_on_where_the_same_model_is_fitted_further(tmp_path):
    callback = fa.LightningMonitor(*samples(), every=2, measure=["features"])
    model, trainer = fit(tmp_path, 4, [callback])
    start = callback.monitor.initial
    trainer.fit_loop.epoch_loop.max_steps = 8
    trainer.fit(model, batches())
    assert callback.monitor.measured == {0, 2, 4, 6, 8}
    assert callback.monitor.initial is start


@pytest.mark.parametrize("step", [0, 5])
def test_a_record_begins_anew_where_the_same_model_starts_again_or_elsewhere(step):
    callback, model = fa.LightningMonitor(samples()[0], measure="features"), small_network()
    callback.on_train_start(SimpleNamespace(global_step=0), model)
    if step:
        callback.monitor.step(2)
    with torch.no_grad():
        model.network[0].weight *= 2
    callback.on_train_start(SimpleNamespace(global_step=step), model)
    assert callback.monitor.measured == {step}
    start = callback.monitor.initial["network.0.weight"]
    assert torch.equal(start, model.network[0].weight)
    assert [noted for noted, _ in callback.monitor.problems] == [step] * (step > 0)


def test_a_checkpoints_record_takes_the_place_of_one_of_the_same_step(tmp_path):
    options = {"every": 2, "measure": ["features"]}
    mine, theirs = (fa.LightningMonitor(*samples(), **options) for _ in range(2))
    _, trainer = fit(tmp_path, 2, [theirs])
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    model = small_network()
    with torch.no_grad():
        model.network[0].weight *= 2
    fit(tmp_path, 2, [mine], model=model)
    assert not mine.monitor.frame().equals(theirs.monitor.frame())
    fit(tmp_path, 4, [mine], resume=tmp_path / "last.ckpt", model=model)
    earlier = mine.monitor.frame().query("step <= 2").reset_index(drop=True)
    assert earlier.equals(theirs.monitor.frame())
    assert mine.monitor.measured == {0, 2, 4}


def test_a_state_of_before_the_training_is_no_record():
    callback, model = fa.LightningMonitor(samples()[0], measure="features"), small_network()
    callback.load_state_dict(fa.LightningMonitor(samples()[0]).state_dict())
    callback.on_train_start(SimpleNamespace(global_step=0), model)
    assert callback.monitor.measured == {0}


def test_a_record_that_a_test_has_loaded_is_not_that_of_the_next_training(tmp_path):
    callback = fa.LightningMonitor(*samples(), every=2, measure=["kernel"])
    model, trainer = fit(tmp_path, 6, [callback])
    first = callback.monitor.frame()
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    type(model).test_step = type(model).training_step
    trainer.test(model, batches(), ckpt_path=tmp_path / "first.ckpt", verbose=False)
    other = small_network()
    with torch.no_grad():
        other.network[0].weight *= 2
    fit(tmp_path, 4, [callback], model=other)
    assert callback.monitor.measured == {0, 2, 4}
    assert not callback.monitor.frame().equals(first.query("step <= 4"))


def test_lightning_keeps_the_records_of_several_apart(tmp_path):
    def several():
        x, y = samples()
        options = {"every": 2, "measure": ["features"]}
        some = fa.LightningMonitor(x[:9], y[:9], name="some", **options)
        return [fa.LightningMonitor(x, y, **options), some]

    callbacks = several()
    _, trainer = fit(tmp_path, 2, [*callbacks])
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = several()
    fit(tmp_path, 4, [*again], resume=tmp_path / "last.ckpt")
    for before, after in zip(callbacks, again, strict=True):
        earlier = after.monitor.frame().query("step <= 2").reset_index(drop=True)
        assert earlier.equals(before.monitor.frame())
        assert after.monitor.measured == {0, 2, 4}


def test_lightning_saves_the_record_of_a_training_that_fails(tmp_path):
    class Failing(lightning().Callback):
        def on_train_batch_start(self, trainer, *_):
            if trainer.global_step == 3:
                raise RuntimeError("failed")

    callback = fa.LightningMonitor(*samples(), every=2, folder=tmp_path / "record")
    with pytest.raises(RuntimeError, match="failed"):
        fit(tmp_path, 6, [callback, Failing()])
    assert set(pd.read_csv(tmp_path / "record" / "metrics.csv")["step"]) == {0, 2}


@pytest.mark.parametrize("name", ["LightningMonitor", "TrainerMonitor"])
def test_a_state_or_a_count_of_ones_own_is_refused(name):
    with pytest.raises(UserError, match=r"^state: a callback goes on by itself"):
        getattr(fa, name)(*samples(), state="somewhere")
    with pytest.raises(UserError, match=r"^first: a callback counts the trainer's own steps"):
        getattr(fa, name)(*samples(), first=3)
    with pytest.raises(UserError, match=r"^evry: is not an option of Monitor; did you mean 'ev"):
        getattr(fa, name)(*samples(), evry=3)
    with pytest.raises(UserError, match=r"^model: is not an option of Monitor"):
        getattr(fa, name)(*samples(), model=nn.Linear(5, 2))


def test_a_folder_that_cannot_be_written_to_is_told_before_the_training(tmp_path):
    (tmp_path / "file").touch()
    callback = fa.LightningMonitor(*samples(), folder=tmp_path / "file" / "record")
    with pytest.raises(UserError, match=r"folder: .*; give another"):
        fit(tmp_path, 2, [callback])


def test_a_folder_without_permission_is_told_before_the_training(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("os.access", lambda *given: asked.append(given))  # root has all of them
    callback = fa.LightningMonitor(*samples(), folder=tmp_path)
    with pytest.raises(UserError, match=r"^folder: .* is not writable; give another\.$"):
        callback.on_train_start(SimpleNamespace(global_step=0), small_network())
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_a_folder_is_made_with_those_that_it_is_in_and_none_is_needed(tmp_path, caplog):
    for folder in (tmp_path / "runs" / "record", None):
        callback = fa.LightningMonitor(*samples(), folder=folder, measure="features")
        callback.on_train_start(SimpleNamespace(global_step=0), small_network())
        callback.on_fit_end(SimpleNamespace(is_global_zero=True), callback.monitor.model)
    assert (tmp_path / "runs" / "record" / "metrics.csv").exists()
    assert not caplog.text


def test_a_record_that_cannot_be_saved_at_the_end_is_logged(tmp_path, caplog):
    callback = fa.LightningMonitor(*samples(), folder=tmp_path / "record")
    (tmp_path / "record" / "metrics.csv" / "in_its_place").mkdir(parents=True)
    fit(tmp_path, 2, [callback])
    assert "the record of the training could not be saved" in caplog.text


def test_of_several_processes_the_first_one_saves(tmp_path):
    options = {"every": 2, "measure": ["features"], "folder": tmp_path / "record"}
    callback = fa.LightningMonitor(*samples(), **options)
    _, trainer = fit(tmp_path, 2, [callback])
    written = (tmp_path / "record" / "metrics.csv").read_bytes()
    step = 2
    for end in (callback.on_fit_end, partial(callback.on_exception, exception=KeyboardInterrupt())):
        step += 2
        callback.monitor.step(step)
        for first in (False, True):
            end(SimpleNamespace(is_global_zero=first), trainer.model)
            same = (tmp_path / "record" / "metrics.csv").read_bytes() == written
            assert same is not first
        written = (tmp_path / "record" / "metrics.csv").read_bytes()


def test_of_several_processes_of_the_trainer_the_first_one_saves(tmp_path):
    x = {"input_ids": torch.ones(6, 6, dtype=torch.long)}
    options = {"every": 2, "output": "logits", "measure": ["features"]}
    callback = fa.TrainerMonitor(x, folder=tmp_path / "record", **options)
    arguments = SimpleNamespace(output_dir=tmp_path)
    callback.on_save(arguments, SimpleNamespace(is_world_process_zero=True, global_step=9), None)
    assert not (tmp_path / "checkpoint-9").exists()  # as long as there is no record
    train_bert(tmp_path, 2, [callback])
    for first in (False, True):
        shutil.rmtree(tmp_path / "record")
        (tmp_path / "record").mkdir()
        state = SimpleNamespace(is_world_process_zero=first, global_step=9)
        callback.on_save(arguments, state, None)
        callback.on_train_end(arguments, state, None)
        for folder in (tmp_path / "checkpoint-9" / "alignment", tmp_path / "record"):
            assert (folder / "metrics.csv").exists() is first


def tiny_bert():
    torch.manual_seed(0)
    config = transformers().BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=2,
    )
    return transformers().BertForSequenceClassification(config)


def train_bert(folder, steps, callbacks, resume=None, seed=0):
    tokens = torch.randint(0, 20, (16, 6), generator=torch.Generator().manual_seed(2))
    rows = [{"input_ids": row, "labels": int(row[0] > 9)} for row in tokens]
    model = tiny_bert()
    arguments = transformers().TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_steps=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=seed,
    )
    trainer = transformers().Trainer(model, arguments, train_dataset=rows, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return model


def test_the_trainer_trains_to_the_same_bits_and_the_record_goes_on(tmp_path):
    tokens = torch.randint(0, 20, (6, 6), generator=torch.Generator().manual_seed(3))
    x, y = {"input_ids": tokens}, torch.tensor([0, 1, 0, 1, 1, 0])
    callback = fa.TrainerMonitor(x, y, every=2, output="logits")
    plain = train_bert(tmp_path / "plain", 4, [])
    model = train_bert(tmp_path / "watched", 4, [callback])
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    assert callback.monitor.measured == {0, 2, 4}

    again = fa.TrainerMonitor(x, y, every=2, output="logits")
    train_bert(tmp_path / "watched", 6, [again], str(tmp_path / "watched" / "checkpoint-4"))
    assert again.monitor.measured == {0, 2, 4, 6}
    assert again.monitor.problems == []

    anew = fa.TrainerMonitor(x, y, every=2, output="logits")
    train_bert(tmp_path / "other", 6, [anew], str(tmp_path / "watched" / "checkpoint-4"))
    assert anew.monitor.measured == {4, 6}
    ((step, problem),) = anew.monitor.problems
    assert (step, problem.partition(" in ")[0]) == (4, "there is no record")


def test_the_trainer_keeps_the_records_of_several_apart(tmp_path):
    def several():
        options = {"every": 2, "output": "logits", "measure": ["features"]}
        parts = {name: torch.full((6, 6), token) for token, name in enumerate(["", "other"])}
        return [fa.TrainerMonitor({"input_ids": x}, name=n, **options) for n, x in parts.items()]

    train_bert(tmp_path, 4, several())
    again = several()
    train_bert(tmp_path, 6, again, str(tmp_path / "checkpoint-4"))
    assert [callback.monitor.measured for callback in again] == [{0, 2, 4, 6}] * 2


@pytest.mark.parametrize("cut", ["callbacks.write_whole", "monitor.Monitor.save"])
def test_a_checkpoint_that_was_cut_off_has_no_record_or_a_whole_one(cut, tmp_path, monkeypatch):
    x = {"input_ids": torch.ones(6, 6, dtype=torch.long)}
    options = {"every": 2, "output": "logits", "measure": ["features"]}

    def cut_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"feature_alignment.instrument.{cut}", cut_off)
    with pytest.raises(KeyboardInterrupt):
        train_bert(tmp_path, 4, [fa.TrainerMonitor(x, **options)])
    monkeypatch.undo()
    anew = fa.TrainerMonitor(x, **options)
    train_bert(tmp_path, 6, [anew], str(tmp_path / "checkpoint-4"))
    assert anew.monitor.measured == {4, 6}
    assert "there is no record" in anew.monitor.problems[0][1]


def test_the_record_of_another_training_is_not_continued(tmp_path):
    x = {"input_ids": torch.ones(6, 6, dtype=torch.long)}
    options = {"every": 2, "output": "logits", "measure": ["features"]}
    for folder, seed in (("one", 0), ("two", 1)):
        train_bert(tmp_path / folder, 4, [fa.TrainerMonitor(x, **options)], seed=seed)
    resumed = str(tmp_path / "one" / "checkpoint-4")
    with pytest.raises(UserError, match="is the record of another training"):
        train_bert(tmp_path / "two", 6, [fa.TrainerMonitor(x, **options)], resumed)


def test_a_lightning_training_that_goes_on_without_a_record_says_so():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    callback = fa.LightningMonitor(x, measure="features")
    callback.on_train_start(SimpleNamespace(global_step=20), model)
    assert sorted(callback.monitor.measured) == [20]
    assert callback.monitor.problems == [
        (20, "there is no record in the checkpoint, so it begins here")
    ]


@pytest.mark.parametrize(
    ("name", "package"), [("LightningMonitor", "lightning"), ("TrainerMonitor", "transformers")]
)
def test_a_missing_package_is_named(name, package):
    with pytest.raises(ImportError, match=rf"^{name} needs {package}: pip install {package}\.$"):
        module.__getattr__(name)
    with pytest.raises(AttributeError, match=r"has no attribute 'Monitors'"):
        module.__getattr__("Monitors")
