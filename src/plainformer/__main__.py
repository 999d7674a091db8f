"""python -m plainformer: the command line."""

from plainformer.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
