"""``python -m torch_ir`` is the command ``torch-ir``."""

import signal


def run() -> None:
    """Run ``torch-ir``; while its modules are loaded, Ctrl-C ends it without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from torch_ir.cli.process import run as run_command

    signal.signal(signal.SIGINT, handler)
    run_command()


if __name__ == "__main__":
    run()
