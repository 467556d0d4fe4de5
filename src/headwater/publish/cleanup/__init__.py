"""Cleanup: files and forks that nothing ever referenced. What a commit has ever referenced is not its business."""
