"""Files that were made to be slow or large to read, one for each way that was thought of.

``HOSTILE`` has a function from a size in bytes to a file of about that size, by ``"kind: what"``;
the kinds are those of ``tools/fuzz_judging.py``. Most are accepted; some fail at their end.
"""

from hostile.binary_files import ARCHIVES, WEIGHTS
from hostile.json_files import DOCUMENTS
from hostile.text_files import TEXT

HOSTILE = {**DOCUMENTS, **TEXT, **ARCHIVES, **WEIGHTS}
