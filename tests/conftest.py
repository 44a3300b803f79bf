"""What every test stands on: no network, one thread, nothing left over from the caller's shell."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["NO_COLOR"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
