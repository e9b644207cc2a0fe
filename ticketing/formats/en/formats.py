"""How Django writes times where no template says it, as in the admin: with the name of their zone, so that no time is
read on another clock."""

DATETIME_FORMAT = "j M Y, H:i:s T"
SHORT_DATETIME_FORMAT = DATETIME_FORMAT
