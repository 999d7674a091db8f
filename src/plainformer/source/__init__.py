"""A model as one flat PyTorch file to read: one rule a part that writes its code. Standard library only."""

from __future__ import annotations

from plainformer.source import attention as attention  # its rules join `code`
from plainformer.source import experts as experts
from plainformer.source.page import Page as Page
from plainformer.source.parts import code as code
from plainformer.source.writing import write as write
