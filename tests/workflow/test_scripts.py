"""Scripts of jobs make nothing of files that are not as an earlier job wrote them."""

import json
import runpy
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize("script", ["judge_claims", "judge_universes", "gather_multiverse"])
def test_what_was_changed_since_it_was_written_is_refused(root, tmp_path, capsys, script):
    (tmp_path / "claims.csv").touch()
    record = tmp_path / "claims.provenance.json"
    record.write_text(json.dumps({"outputs": {"claims.csv": "other"}}))
    files = {"made": [str(record)], "claims": [str(tmp_path / "claims.csv")]}
    snakemake = SimpleNamespace(
        params=SimpleNamespace(spec={}, modules=["feature_alignment.pipeline.spec"]),
        input=type("InputFiles", (list,), files)(),
        output={"provenance": str(tmp_path / "provenance.json")},
        log=[str(tmp_path / "job.log")],
    )
    with pytest.raises(SystemExit):
        runpy.run_path(str(root / f"workflow/scripts/{script}.py"), {"snakemake": snakemake})
    assert "claims.csv: has been changed since it was written" in capsys.readouterr().err
