"""One folder for each paper, with everything specific to it.

The environment variable `FEATURE_ALIGNMENT_PAPERS` names a folder with further papers' folders. The
key `papers_path` of the configuration sets it, see `feature_alignment.pipeline.papers.add_papers`.
"""

import os

__path__ += filter(None, [os.environ.get("FEATURE_ALIGNMENT_PAPERS")])
