"""Comparison of secrets in constant time, without OpenSSL: ``hmac`` loads that library for the same, and neither a
worker nor a front-end needs its 3.4 MB for anything else.
"""

from __future__ import annotations

from _operator import _compare_digest as compare_digest

__all__ = ["compare_digest"]
