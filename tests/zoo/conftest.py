"""Published models are built from their configurations: nothing is downloaded."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
