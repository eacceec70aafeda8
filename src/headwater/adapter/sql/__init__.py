"""Our language: text in, a closed union of statements out; types and literals beside it."""

from __future__ import annotations
