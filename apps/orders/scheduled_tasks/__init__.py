"""Scheduled tasks about orders: a reminder to the buyers, and the figures of a sale for staff."""
