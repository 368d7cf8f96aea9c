"""How well trained models sound, before they are exported."""
