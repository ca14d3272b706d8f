"""The identity of this build of rlx. ``setup.py`` writes this file anew in every package that it builds.

In a checkout nothing is known before the sources are read: ``rlx.build_digest`` does that.
"""

DIGEST: str | None = None
