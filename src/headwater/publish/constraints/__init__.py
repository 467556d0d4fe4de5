"""What rows must satisfy, and where that is written down."""
