"""One folder for each paper, with everything that is only that paper's.

The environment variable `FEATURE_ALIGNMENT_PAPERS` names a further folder with such folders; the
key `papers_path` of the configuration sets it, see `feature_alignment.pipeline.papers.add_papers`.
"""

import os

__path__ += filter(None, [os.environ.get("FEATURE_ALIGNMENT_PAPERS")])
