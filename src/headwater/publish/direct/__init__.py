"""Publishing where tables have no heads of their own: one commit of the catalog, and nothing to recover."""
