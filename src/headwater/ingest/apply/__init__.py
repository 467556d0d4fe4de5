"""Requests become effects: the orders of DELETE, INSERT, UPDATE and replace, and what undoes them half way."""
