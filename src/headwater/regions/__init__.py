"""Regions: where a URI lives in each of them, and what keeps its copies alive there.

    registry    the rules: regions, sources, where they go, overrides; read from YAML with the line of each mistake
    resolve     where a file has its place in a region: `Resolver(registry, region).resolve(uri)`
    rollout     publishing the registry, and following it: `Publisher`, `RegistryClient`
    claims      files that a run needs, against their deletion (hazard G3): `Claims`
    outputs     files that exist in one region only (hazard G4): `Outputs`

All URIs that go in may be spelled in any way; all that come out are canonical (`uris.py`): two that differ are two
objects. Claims and outputs are on the primary database. Whoever needs a part imports that package: this one imports
nothing, so that resolving brings no SQL.
"""
