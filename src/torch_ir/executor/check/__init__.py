"""The checked compile: every operand, operator and recorded type is looked at before a run."""
