"""Where samples come from: one module per kind of source."""
