"""The last step: the region's readers see the commit, and the lags of its way are told."""
