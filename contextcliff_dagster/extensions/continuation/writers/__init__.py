"""Writers of known ability: engines without a model, for controls.

Does not belong here: what is measured of their prose.
"""
