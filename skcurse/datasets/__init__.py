"""Data models (samplers), bundled series and windows."""
