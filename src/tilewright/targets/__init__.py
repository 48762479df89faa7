"""Descriptions of NPUs: one TOML file a chip."""
