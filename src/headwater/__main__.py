"""`python -m headwater` is the `headwater` command."""

from headwater.cli.main import main

main()
