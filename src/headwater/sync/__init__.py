"""Regional replicas: diff, plan, copy, verify, localise, promote, observe; a package for each step."""
