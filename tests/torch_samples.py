"""torch's own samples of its operators, as its tests have them.

For each iterator of samples torch looks through the sources of the whole stack for a test of
unittest, by whose name it would seed. There is none here, and the look takes longest of all.
"""

from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db

__all__ = ["op_db"]

common_utils.extract_test_fn = lambda: None
