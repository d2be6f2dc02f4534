"""Property tests here are timed by nobody: the first example pays for the imports."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
