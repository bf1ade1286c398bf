"""Data models (samplers), bundled series and windows."""

from skcurse.datasets._base import DataModel

__all__ = ["DataModel"]
