import numpy as np
import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.training.errors import MetricNotFiniteError
from feature_alignment.training.probes import Measurement, Recorder, Row


def rows(*values):
    return Measurement(rows=[Row("layers.0", "test", name, value) for name, value in values])


def test_frame_is_tidy_and_in_order():
    recorder = Recorder()
    recorder.record(0, rows(("nfc", 0.5), ("cka", 0.25)))
    recorder.record(10, rows(("nfc", 1)))
    frame = recorder.frame()
    assert list(frame.columns) == ["step", "layer", "split", "metric", "value"]
    assert list(Recorder().frame().columns) == list(frame.columns)
    assert frame.to_numpy().tolist() == [
        [0, "layers.0", "test", "nfc", 0.5],
        [0, "layers.0", "test", "cka", 0.25],
        [10, "layers.0", "test", "nfc", 1.0],
    ]
    for table in (frame, Recorder().frame()):
        assert str(table["step"].dtype) == "int64"
        assert str(table["value"].dtype) == "float64"


def test_one_value_can_be_looked_up():
    recorder = Recorder()
    recorder.record(3, rows(("nfc", 0.5)))
    assert recorder.value(3, "nfc", layer="layers.0", split="test") == 0.5
    with pytest.raises(KeyError):
        recorder.value(3, "nfc")


def test_arrays_are_kept_by_name_and_step_and_copied():
    recorder = Recorder()
    array = np.arange(3.0)
    recorder.record(7, Measurement(arrays={"eigenvalues": array}))
    array[:] = 0
    assert recorder.arrays["eigenvalues/step7"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_named(value):
    with pytest.raises(MetricNotFiniteError, match=r"'nfc' of layer 'layers.0' on 'test' is .* 4"):
        Recorder().record(4, rows(("nfc", value)))


@pytest.mark.parametrize("value", ["x", "1", None, 1j, [0.5], torch.ones(2), np.ones(2)])
def test_a_value_that_is_no_number_is_named(value):
    with pytest.raises(TypeError, match=r"'nfc' of layer 'layers.0' on 'test' is .* 4; give one"):
        Recorder().record(4, rows(("nfc", value)))


def test_an_array_that_is_not_finite_is_named():
    with pytest.raises(
        UserError, match=r"array .modes. is not finite at step 4; .* make that wider"
    ):
        Recorder().record(4, Measurement(arrays={"modes": np.array([0, np.nan])}))


def test_recording_the_same_quantity_twice_is_refused():
    recorder = Recorder()
    recorder.record(1, rows(("nfc", 0.5)))
    recorder.record(2, rows(("nfc", 0.5)))
    with pytest.raises(ValueError, match=r"'nfc' of layer 'layers.0' on 'test' was recorded twice"):
        recorder.record(2, rows(("nfc", 0.6)))
    recorder.record(2, Measurement(arrays={"modes": np.ones(2)}))
    with pytest.raises(ValueError, match="array 'modes' was recorded twice at step 2"):
        recorder.record(2, Measurement(arrays={"modes": np.ones(2)}))


@pytest.mark.parametrize("row", [Row(3, "train", "a", 1.0), Row("all", None, "a", 1.0)])
def test_names_that_are_no_text_are_refused(row):
    with pytest.raises(TypeError, match="at step 4; name each of the three by a text"):
        Recorder().record(4, Measurement([row]))
