"""Hugging Face's files: config.json to a Spec and back. `read`, `read_file`, `write`; nothing is fetched."""

from plainformer.huggingface.configs import Reading, read, read_file

__all__ = ["Reading", "read", "read_file"]
