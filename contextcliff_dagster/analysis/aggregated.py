"""The former address of `profile_table`, kept for scripts for one release."""

import warnings

from contextcliff_dagster.analysis.profile.table_profile import profile_table as profile_table

warnings.warn(
    "import profile_table from contextcliff_dagster.api instead", DeprecationWarning, stacklevel=2
)
