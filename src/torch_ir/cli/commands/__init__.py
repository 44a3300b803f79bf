"""The commands of ``torch-ir``: one module each, loaded when the command is called."""
