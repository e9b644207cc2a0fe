"""The admin's forms of events and their parts, and the values of an event's rows as the admin shows them."""
