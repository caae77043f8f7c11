"""HTML page about the record of a training."""

import base64
import io
import json
import math
from pathlib import Path

import pandas as pd

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.instrument import ABOUT, METRICS
from feature_alignment.instrument.pictures import PANELS, draw_record
from feature_alignment.pipeline.report.rendering import render
from feature_alignment.pipeline.report.wording import duration_text, number_text

TEMPLATE = Path(__file__).with_name("record.html.jinja")
_TOLD = {"model": str, "parameters": int, "samples": int, "measure": list, "seconds": int | float}
_TOLD |= {"problems": list, "versions": dict}
_CURE = "save the record again, by Monitor.save or `feature-alignment measure`"


def record_page(folder: Path) -> str:
    """The page of a record written by `Monitor.save`: curves, and a table of all metrics.

    Raises:
        UserError: if there is no record, or its table is damaged or empty.
    """
    for name in (METRICS, ABOUT):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder / name}: there is no such file; make a record by Monitor.save or "
                "`feature-alignment measure`."
            )
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        whole = about["table_sha256"] == sha256_of(folder / METRICS)
        wrong = [key for key, kind in _TOLD.items() if not isinstance(about[key], kind)]
        pairs = all(isinstance(one, list) and len(one) == 2 for one in about["problems"])
        wrong += ["problems"] * (not pairs) + ["seconds"] * (not math.isfinite(about["seconds"]))
        if wrong:
            raise UserError(f"{folder / ABOUT}: {wrong[0]}: is damaged; {_CURE}.")
        text = (folder / METRICS).read_text(encoding="utf-8") if whole else ""
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / ABOUT}: is damaged; {_CURE}.") from error
    if not whole:
        raise UserError(f"{folder / METRICS}: is not the table that {ABOUT} tells of; {_CURE}.")
    frame = pd.read_csv(
        io.StringIO(text),
        dtype={"layer": str, "split": str, "metric": str, "value": float},
        keep_default_na=False,
    )
    if frame.empty:
        raise UserError(f"{folder / METRICS}: has no rows, since nothing could be measured.")
    values = frame.groupby(["metric", "layer", "split"], sort=False)["value"]  # in order of steps
    found = values.agg(first="first", last="last", least="min", most="max")
    rows = found.map(number_text).reset_index()
    rows["title"] = [PANELS.get(metric, "") for metric in rows["metric"]]
    picture = io.BytesIO()
    draw_record(frame).savefig(picture, format="png")
    return render(
        TEMPLATE,
        about={**about, "duration": duration_text(about["seconds"])},
        splits=list(frame["split"].unique()),
        steps=sorted(frame["step"].unique()),
        picture=base64.b64encode(picture.getvalue()).decode("ascii"),
        rows=rows.to_dict("records"),
        table=METRICS,
    )
