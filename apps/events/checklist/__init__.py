"""The checklist of a draft: what is missing or unsafe before its publication."""
