"""Plug-ins for other frameworks, each with an optional dependency that is imported only there."""
