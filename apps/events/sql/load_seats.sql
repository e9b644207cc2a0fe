-- Loads all seats of an event in one stream; ids follow the order of the stream.
COPY events_seat (
    event_id, section_id, category_id, guid, row, number, x, y, row_index, place_index, rank, accessible, companion
) FROM STDIN
