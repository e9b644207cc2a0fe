"""Files are parsed into plans or refused; every refusal names its location, and no content breaks the parser."""

import copy
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.events.plans import Limits, Plan, PlanError, from_layout, parse_plan, read_file, to_layout
from apps.events.plans.colors import normal_color
from apps.events.plans.straight_rows import SeatRows, row_label, write_csv
from tests.support.events.factories import block, encoded, plan, row, seat, zone

HEADER = "section,row,seat,x,y,category,accessible"


def parsed(document: Any) -> Plan:
    return parse_plan(encoded(document))


def refusal(data: bytes, limits: Limits | None = None) -> PlanError:
    with pytest.raises(PlanError) as refused:
        parse_plan(data, limits)
    assert "\n" not in str(refused.value)
    assert "\x00" not in str(refused.value)
    return refused.value


def changed(change: Callable[[dict], Any]) -> bytes:
    """Return a plan with two zones, with one change."""
    document = copy.deepcopy(plan([block("Stalls", 2, 4), block("Box", 1, 4, y=400)]))
    change(document)
    return encoded(document)


def _seat_at(document: dict, z: int = 1, r: int = 0, s: int = 2) -> dict:
    return document["zones"][z]["rows"][r]["seats"][s]


def _area(**parts: Any) -> Callable[[dict], Any]:
    return lambda d: d["zones"][0].update(areas=[{"position": {"x": 0, "y": 0}, **parts}])


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: _seat_at(d).update(category="Nowhere"), "zones[1].rows[0].seats[2].category"),
        (lambda d: _seat_at(d).update(category=""), "zones[1].rows[0].seats[2].category"),
        (lambda d: _seat_at(d).update(category=3), "zones[1].rows[0].seats[2].category"),
        (lambda d: _seat_at(d).pop("category"), "zones[1].rows[0].seats[2]"),
        (lambda d: _seat_at(d).update(seat_guid="Stalls-A-1"), "zones[1].rows[0].seats[2].seat_guid"),
        (lambda d: _seat_at(d).update(seat_guid=" "), "zones[1].rows[0].seats[2].seat_guid"),
        (lambda d: _seat_at(d).update(seat_guid="a\x00b"), "zones[1].rows[0].seats[2].seat_guid"),
        (lambda d: _seat_at(d).update(seat_guid="g" * 121), "zones[1].rows[0].seats[2].seat_guid"),
        (lambda d: _seat_at(d).update(seat_guid=None), "zones[1].rows[0].seats[2].seat_guid"),
        (lambda d: _seat_at(d).update(seat_number="n" * 41), "zones[1].rows[0].seats[2].seat_number"),
        (lambda d: _seat_at(d).update(seat_number="1\u20282"), "zones[1].rows[0].seats[2].seat_number"),
        (lambda d: _seat_at(d).update(position={"x": 1}), "zones[1].rows[0].seats[2].position"),
        (lambda d: _seat_at(d).update(position={"x": "left", "y": 1}), "zones[1].rows[0].seats[2].position.x"),
        (lambda d: _seat_at(d).update(position={"x": 1, "y": 1e300}), "zones[1].rows[0].seats[2].position.y"),
        (lambda d: _seat_at(d).update(position={"x": 10**400, "y": 1}), "zones[1].rows[0].seats[2].position.x"),
        (lambda d: d["zones"][1]["rows"][0].update(row_number="r" * 41), "zones[1].rows[0].row_number"),
        (lambda d: d["zones"][1]["rows"][0].pop("seats"), "zones[1].rows[0]"),
        (lambda d: d["zones"][1].update(rows={}), "zones[1].rows"),
        (lambda d: d["zones"][1].update(name="n" * 121), "zones[1].name"),
        (lambda d: d["zones"][1].update(position=None), "zones[1].position"),
        (lambda d: d["zones"].append(7), "zones[2]"),
        (lambda d: d.update(zones=None), "zones"),
        (lambda d: d.pop("zones"), "top of the file"),
        (lambda d: d.pop("categories"), "top of the file"),
        (lambda d: d.update(name=["x"]), "name"),
        (lambda d: d["categories"].append({"name": "Stalls"}), "categories[1].name"),
        (lambda d: d["categories"].append({"color": "red"}), "categories[1]"),
        (lambda d: d["categories"].append({"name": "c" * 81}), "categories[1].name"),
        (lambda d: d["categories"].append({"name": "\x07"}), "categories[1].name"),
        (lambda d: d.update(size={"width": 1e9, "height": 1}), "size.width"),
        (lambda d: d.update(size={"width": -1, "height": 1}), "size.width"),
        (lambda d: d.update(size={"width": 1, "height": -0.5}), "size.height"),
        (lambda d: _seat_at(d).update(accessible="no"), "zones[1].rows[0].seats[2].accessible"),
        (lambda d: _seat_at(d).update(wheelchair="yes"), "zones[1].rows[0].seats[2].wheelchair"),
        (lambda d: _seat_at(d).update(wheelchair=1), "zones[1].rows[0].seats[2].wheelchair"),
        (lambda d: _seat_at(d).update(companion={"odd": []}), "zones[1].rows[0].seats[2].companion"),
        (lambda d: _seat_at(d).update(seat_number="1"), "zones[1].rows[0].seats[2].seat_number"),
        (lambda d: _seat_at(d).update(position=_seat_at(d, s=0)["position"]), "zones[1].rows[0].seats[2].position"),
        (_area(shape="circle"), "zones[0].areas[0]"),
        (_area(shape="ellipse"), "zones[0].areas[0]"),
        (_area(shape="rectangle"), "zones[0].areas[0]"),
        (_area(shape="circle", circle={"radius": -1}), "zones[0].areas[0].circle.radius"),
        (_area(shape="rectangle", rectangle={"width": -1, "height": 1}), "zones[0].areas[0].rectangle.width"),
        (_area(shape="circle", circle={"radius": 1}, width=-1), "zones[0].areas[0].width"),
        (_area(shape="of its editor", height=-1), "zones[0].areas[0].height"),
        (_area(shape="text", text={"text": "", "size": -1}), "zones[0].areas[0].text"),
        (_area(shape="ellipse", ellipse={"radius": {"x": 1, "y": -1}}), "zones[0].areas[0].ellipse.radius.y"),
        (_area(shape="polygon", polygon={"points": []}), "zones[0].areas[0].polygon.points"),
        (_area(shape="text", text={"text": []}), "zones[0].areas[0].text"),
    ],
)
def test_an_invalid_value_is_reported_with_its_path(change: Callable[[dict], Any], place: str) -> None:
    assert refusal(changed(change)).place.startswith(place)


def test_two_seats_of_one_number_in_a_row_are_refused_also_when_the_row_is_written_in_two_parts() -> None:
    halves = [row("A", [seat("a", 1), seat("b", 2, x=20)]), row("A", [seat("c", 2, x=60)])]
    assert str(refusal(encoded(plan([zone("Z", halves)])))) == (
        "zones[0].rows[1].seats[0].seat_number: “2” is already the number of zones[0].rows[0].seats[1], in the same row"
    )


def test_numbers_may_repeat_in_other_rows_in_rows_without_a_label_and_where_seats_have_none() -> None:
    rows = [
        row("A", [seat("a", 1), seat("b", "", x=20), seat("c", "", x=40)]),
        row("B", [seat("d", 1)], y=20),
        row("", [seat("e", 1)], y=40),
        row("", [seat("f", 1)], y=60),
    ]
    assert parsed(plan([zone("Z", rows), zone("Y", [row("A", [seat("g", 1)])], y=200)])).seat_count == 7


def test_two_seats_at_one_position_are_refused_however_it_adds_up() -> None:
    zones = [zone("Z", [row("A", [seat("a", 1, x=0.1)], x=0.2)]), zone("Y", [row("A", [seat("b", 1)])], x=0.3)]
    assert str(refusal(encoded(plan(zones)))) == (
        "zones[1].rows[0].seats[0].position: this is where zones[0].rows[0].seats[0] is already"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"name": "Plan"', '"name": "Home", "name": "Plan"', "top of the file: the key “name” is given twice"),
        (
            '"seat_guid": "Box-A-3"',
            '"seat_guid": "Box-A-3", "category": "Stalls"',
            "zones[1].rows[0].seats[2]: the key “category” is given twice",
        ),
        (
            '"seat_guid": "Box-A-3"',
            '"seat_guid": "Box-A-3", "ex\\ntra": [{"u": 1, "u": 1}]',
            "zones[1].rows[0].seats[2].ex\N{REPLACEMENT CHARACTER}tra[0]: the key “u” is given twice",
        ),
    ],
)
def test_a_key_given_twice_is_refused_with_its_path(old: str, new: str, reason: str) -> None:
    text = changed(lambda d: None).decode()
    assert text.count(old) == 1
    assert str(refusal(text.replace(old, new).encode())) == reason


def test_a_long_id_of_a_zone_is_refused_before_a_slug_is_made_of_it() -> None:
    """Python normalizes such a run of combining marks in quadratic time."""
    refused = refusal(changed(lambda d: d["zones"][0].update(name="!", zone_id="a" + "\u0315\u0300" * 40_000)))
    assert str(refused) == "zones[0].zone_id: is longer than 120 characters"


def test_a_duplicate_seat_is_reported_with_both_paths() -> None:
    refused = refusal(changed(lambda d: _seat_at(d).update(seat_guid="Stalls-B-3")))
    assert str(refused) == (
        "zones[1].rows[0].seats[2].seat_guid: “Stalls-B-3” is already the id of zones[0].rows[1].seats[2]"
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\t ", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"hello", "neither JSON nor CSV"),
        (b"\x89PNG\r\n\x1a\n", "UTF-8"),
        (b"PK\x03\x04 zipped, it says", "header"),
        (b"[]", "expected 'object', got 'array'"),
        (b'"text"', "neither"),
        (b"{", "the file ends in the middle"),
        (b'{"name": "a",\n  "zones": ]}', "line 2, column 12"),
        (b'{"name": "a", "zones": [], "categories": []} {}', "trailing characters"),
        (b'{"name": NaN, "zones": [], "categories": []}', "line 1"),
        (b'{"name": "\xff\xfe", "zones": [], "categories": []}', "UTF-8"),
        ('{"name": "é"}'.encode("utf-16"), "UTF-16"),
        (b'{"name": "a", "zones": [], "categories": []}', "zones: the plan has neither seats nor areas"),
    ],
)
def test_a_file_that_is_not_a_plan_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    assert reason in str(refusal(data))


@pytest.mark.parametrize("head", ['{"zones":', '{"name":"x","extra":', '{"zones":[{"rows":[{"seats":[{"accessible":'])
@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_a_file_nested_a_million_levels_deep_is_refused(head: str, bracket: str) -> None:
    refusal((head + bracket * 1_000_000).encode())


def test_a_file_above_the_limit_is_refused_by_its_size_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 100 * 1024 * 1024)
    with pytest.raises(PlanError, match="larger than 64 MiB"):
        read_file(path, Limits())
    with pytest.raises(PlanError, match="larger than 64 MiB"):
        parse_plan(b"{" + b" " * (64 * 1024 * 1024))


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.json", "no such file"), (".", "is a directory"), ("a\0b", "not a file")]
)
def test_an_unreadable_file_is_refused_with_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        read_file(tmp_path / name, Limits())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(seats_max=11), "zones[1].rows[0]: more than 11 seats"),
        (Limits(sections_max=1), "zones: more than 1 zones"),
        (Limits(categories_max=0), "categories: more than 0"),
        (Limits(prices_max=1), "the sections have more than 1 categories together"),
        (Limits(values_max=20), "more than 20 values in the file"),
        (Limits(objects_max=20), "more than 20 objects and lists in the file"),
    ],
)
def test_every_limit_is_enforced(limits: Limits, reason: str) -> None:
    assert reason in str(refusal(changed(lambda _: None), limits))


def test_extensions_of_plan_editors_are_ignored() -> None:
    document = plan()
    document |= {"uuid": "1", "backgroundImage": None}
    document["zones"][0] |= {"uuid": "2", "zone_id": "z1", "displayed": True}
    document["zones"][0]["rows"][0] |= {
        "uuid": "3",
        "row_number_position": "both",
        "row_label": "Row %s",
        "rotation": 4,
    }
    document["zones"][0]["rows"][0]["seats"][0] |= {
        "uuid": "4", "radius": 10, "start_at": 3, "seat_label": "Seat %s", "status": "free", "extra": {"deep": [1]},
    }  # fmt: skip
    assert parsed(document).sections == parsed(plan()).sections


def test_optional_parts_of_the_format_may_be_missing() -> None:
    document = {
        "name": "",
        "categories": [{"name": "Stalls"}],
        "zones": [{"position": {"x": 0, "y": 0}, "rows": [{"row_number": 1, "seats": [seat("a", 1, 5, 5)]}]}],
    }
    read = parsed(document)
    assert read.sections[0].name == "Section 1"
    assert (read.sections[0].seats[0].row, read.categories[0].color[0]) == ("1", "#")
    assert (read.width, read.height) == (40, 40)


def test_positions_add_up_and_a_plan_outside_its_size_is_moved_and_resized() -> None:
    inside = plan([zone("Stalls", [row("A", [seat("a", 1, 3, 4)], x=20, y=30)], x=100, y=200)])
    assert [(s.x, s.y) for s in parsed(inside).sections[0].seats] == [(123, 234)]
    outside = plan([zone("Stalls", [row("A", [seat("a", 1, -500, -10), seat("b", 2, 500, 10)])])])
    read = parsed(outside)
    assert (read.width, read.height) == (1040, 60)
    assert [(s.x, s.y) for s in read.sections[0].seats] == [(20, 20), (1020, 40)]


def test_zones_with_the_same_name_become_sections_with_different_ids() -> None:
    read = parsed(
        plan(
            [
                block("Box", 1, 1),
                {**block("Box 2", 1, 1, y=50), "name": "Box"},
                {**block("c", 1, 1, y=90), "name": "箱"},
            ]
        )
    )
    assert [(section.slug, section.name) for section in read.sections] == [
        ("box", "Box"),
        ("box-2", "Box"),
        ("section", "箱"),
    ]


def test_a_zone_without_seats_is_drawn_but_is_not_a_section() -> None:
    areas = [{"shape": "rectangle", "position": {"x": 1, "y": 2}, "width": 30, "height": 40, "text": "STAGE"}]
    read = parsed(plan([zone("Stage", [], areas=areas), block("Stalls", 1, 2)]))
    assert [section.slug for section in read.sections] == ["stalls"]
    (area,) = read.areas
    assert (area.shape, area.x, area.y, area.width, area.height) == ("rectangle", 1, 2, 30, 40)
    assert area.text is not None
    assert (area.text.text, area.text.x, area.text.y) == ("STAGE", 16, 22)


@pytest.mark.parametrize(
    ("color", "shown"),
    [
        ("rgb(1, 2, 3)", "#010203"),
        ("rgba( 1 2 3 / 50% )", "#010203"),
        ("rgba(1,2,3,0.5)", "#010203"),
        ("rgb(123)", ""),
        ("rgb(1,,2,3)", ""),
        ("rgb(1" + " " * 5_000 + "1" + " " * 5_000 + "1" + " " * 5_000 + "x", ""),
    ],
    ids=["commas", "blanks", "alpha", "digits", "empty", "long"],
)
def test_colors_are_read_with_little_work(color: str, shown: str) -> None:
    """The pattern tried the cube of the number of blanks: 15 KB would have taken an hour."""
    assert normal_color(color) == shown


def test_areas_of_every_shape_get_absolute_coordinates_and_plain_colors() -> None:
    at = {"position": {"x": 10, "y": 10}, "color": "RED", "border_color": "rgb(1, 2, 300)", "rotation": 370}
    areas = [
        {**at, "shape": "rectangle", "rectangle": {"width": 5, "height": 6}},
        {**at, "shape": "circle", "circle": {"radius": 7}, "color": "#abc"},
        {**at, "shape": "ellipse", "ellipse": {"radius": {"x": 8, "y": 9}}, "color": "url(https://example.com/x)"},
        {**at, "shape": "polygon", "polygon": {"points": [{"x": 0, "y": 0}, {"x": 5, "y": 0}, {"x": 5, "y": 5}]}},
        {**at, "shape": "text", "text": {"text": " Bar\n left ", "size": 20, "color": "#00000000"}},
        {**at, "shape": "gaSquare", "rectangle": {"width": 1, "height": 2}},
    ]
    read = parsed(plan([zone("Z", [row("A", [seat("a", 1)])], x=100, y=100, areas=areas)]))
    assert [area.shape for area in read.areas] == ["rectangle", "circle", "ellipse", "polygon", "text", "rectangle"]
    assert all((area.x, area.y, area.rotation) == (110, 110, 10) for area in read.areas)
    assert [area.color for area in read.areas] == ["#ff0000", "#aabbcc", "", "#ff0000", "#ff0000", "#ff0000"]
    assert read.areas[0].border_color == "#0102ff"
    assert read.areas[3].points == ((110, 110), (115, 110), (115, 115))
    assert read.areas[4].text is not None
    assert (read.areas[4].text.text, read.areas[4].text.color) == ("Bar left", "")


def test_an_unknown_shape_is_left_out_with_a_note() -> None:
    areas = [{"shape": "star", "position": {"x": 0, "y": 0}}]
    read = parsed(plan([zone("Z", [row("A", [seat("a", 1)])], areas=areas)]))
    assert (read.areas, read.notes) == ((), ("zones[0].areas[0]: the shape “star” is not drawn",))


@pytest.mark.parametrize(
    ("category", "extra", "marks"),
    [
        ("Stalls", {}, (False, False)),
        ("Wheelchair", {}, (True, False)),
        ("Stalls accessible", {}, (True, False)),
        ("Rollstuhlplatz", {}, (True, False)),
        ("Wheelchair companion", {}, (False, True)),
        ("Begleitperson", {}, (False, True)),
        ("Stalls", {"accessible": True}, (True, False)),
        ("Stalls", {"wheelchair": True}, (True, False)),
        ("Stalls", {"companion": True}, (False, True)),
        ("Stalls", {"accessible": False, "wheelchair": None, "companion": False}, (False, False)),
    ],
)
def test_accessible_and_companion_are_read_from_the_category_or_the_seats_own_key(
    category: str, extra: dict, marks: tuple[bool, bool]
) -> None:
    read = parsed(plan([zone("Z", [row("A", [seat("a", 1, category=category, **extra)])])], (category,)))
    (found,) = read.sections[0].seats
    assert (found.accessible, found.companion) == marks


def test_storing_and_loading_a_plan_returns_the_same_plan() -> None:
    document = plan([block("Stalls", 3, 5), block("Box", 1, 2, y=500)])
    document["zones"][0]["areas"] = [
        {"shape": "polygon", "position": {"x": 1, "y": 1}, "polygon": {"points": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]}},
        {"shape": "text", "position": {"x": 1, "y": 1}, "text": {"text": "Bar"}},
    ]
    read = parsed(document)
    assert from_layout(json.loads(json.dumps(to_layout(read)))) == read


# --- CSV ---------------------------------------------------------------------------------------------------------


def csv(*lines: str, header: str = HEADER, end: str = "\n") -> bytes:
    return end.join((header, *lines, "")).encode()


def test_csv_becomes_sections_rows_and_ids() -> None:
    read = parse_plan(csv("Left Stalls,A,1,10,20,Gold,", "Left Stalls,A,2,35,20,Gold,yes", "Box,,7,0,0,Silver,0"))
    assert [(section.slug, len(section.seats)) for section in read.sections] == [("left-stalls", 2), ("box", 1)]
    first, second = read.sections[0].seats
    assert (first.guid, second.guid, read.sections[1].seats[0].guid) == ("left-stalls-A-1", "left-stalls-A-2", "box-7")
    assert (first.accessible, second.accessible) == (False, True)
    assert [category.name for category in read.categories] == ["Gold", "Silver"]
    assert len({category.color for category in read.categories}) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + csv("Stalls,A,1,10,20,Gold,"),
        csv("Stalls,A,1,10,20,Gold,", end="\r\n"),
        csv('"Stalls","A","1","10","20","Gold",""'),
        csv(" Stalls , A , 1 , 10 , 20 , Gold , no "),
        csv("", "Stalls,A,1,10,20,Gold,", "", ",,,,,,"),
        csv("1,x,Stalls,Gold,A,20,10,n", header="SEAT,Note,Section,Category,Row,Y,X,Accessible"),
        csv("Stalls;A;1;10;20;Gold;", header=HEADER.replace(",", ";")),
        csv("Stalls,A,1,1e1,20.0,Gold,").rstrip(b"\n"),
    ],
    ids=["mark", "crlf", "quoted", "spaces", "blank lines", "other order", "semicolons", "no last newline"],
)
def test_csv_variants_give_the_same_plan(data: bytes) -> None:
    assert parse_plan(data).sections == parse_plan(csv("Stalls,A,1,10,20,Gold,")).sections


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        (csv("Stalls,A,1,10,20,Gold,", "Stalls,A,1,35,20,Gold,"), "line 3", "is already in line 2"),
        (csv("Stalls,A,1,10,20,Gold,", "Box,A,1,10.0,20,Gold,"), "line 3, x and y", "seat in line 2 is already there"),
        (csv("Stalls,A,1,left,20,Gold,"), "line 2, x", "not a number"),
        (csv("Stalls,A,1,nan,20,Gold,"), "line 2, x", "must be a number between"),
        (csv("Stalls,A,1,1,inf,Gold,"), "line 2, y", "must be a number between"),
        (csv("Stalls,A,1,1,,Gold,"), "line 2, y", "not a number"),
        (csv("Stalls,A,1,1,1,,"), "line 2, category", "empty"),
        (csv(",A,1,1,1,Gold,"), "line 2, section", "empty"),
        (csv("Stalls,A,,1,1,Gold,"), "line 2, seat", "empty"),
        (csv("Stalls,A,1,1,1,Gold,perhaps"), "line 2, accessible", "neither yes nor no"),
        (csv("Stalls,A,1,1,1"), "line 2", "has 5 cells"),
        (csv("Stalls,A,1,1,1,Go\x00ld,"), "line 2, category", "cannot be printed"),
        (csv('"Sta\nlls",A,1,1,1,Gold,'), "line 2, section", "cannot be printed"),
        (csv('Stalls,A,"1"2,1,1,Gold,'), "line 2", "not valid CSV"),
        (csv('Stalls,A,"1,1,1,Gold,'), "line", "not valid CSV"),
        (csv("Stalls,A,1,1,1,Gold,", "Stalls,A," + "9" * 200_000 + ",1,1,Gold,"), "line 3", "not valid CSV"),
        (csv("Stalls,A," + "9" * 50 + ",1,1,Gold,"), "line 2, seat", "longer than 40"),
        (csv(), "line 1", "no seats"),
        (csv("Stalls,A,1", header="section,row,seat"), "line 1", "lacks category (expected"),
        (csv("Stalls,A,1,Gold,1", header="section,row,seat,category,y"), "line 1", "lacks x (expected"),
        (csv(header=HEADER + ",x"), "line 1", "names x twice"),
        (csv(header=HEADER + "".join(f",c{number}" for number in range(100))), "line 1", "more than 100 columns"),
        (csv(header=HEADER + ",note,Note"), "line 1", "names note twice"),
        (csv("Stalls,A,1,1,1,Gold,").replace(b"Gold", b"G\xf6ld"), "line 2", "UTF-8"),
    ],
)
def test_an_invalid_csv_line_is_reported_with_its_number(data: bytes, place: str, reason: str) -> None:
    refused = refusal(data)
    assert refused.place.startswith(place)
    assert reason in refused.what


def test_seats_without_coordinates_stand_in_straight_rows_before_a_stage() -> None:
    lines = ["Stalls,A,1,Gold", "Stalls,A,2,Gold", "Stalls,A,3,Gold", "Stalls,B,1,Silver", "Circle,A,1,Silver"]
    read = parse_plan(csv(*lines, header="section,row,seat,category"))
    stalls, circle = read.sections
    assert [(seat.row, seat.number, seat.row_index) for seat in stalls.seats] == [
        ("A", "1", 0), ("A", "2", 0), ("A", "3", 0), ("B", "1", 1),
    ]  # fmt: skip
    assert stalls.seats[1].x == stalls.seats[3].x == circle.seats[0].x == read.areas[0].text.x  # type: ignore[union-attr]
    assert read.areas[0].y < stalls.seats[0].y < stalls.seats[3].y < circle.seats[0].y
    assert stalls.seats[1].rank == 1
    assert "too many rows" in str(
        refusal(csv(*(f"S,A,{n},G" for n in range(34_000)), header="section,row,seat,category"))
    )


def test_sections_of_numbered_rows_are_written_as_a_plan() -> None:
    read = parse_plan(write_csv([SeatRows("Stalls", 28, 3), SeatRows("Circle, left", 1, 2)]))
    stalls, circle = read.sections
    assert [seat.row for seat in stalls.seats[::3]] == [row_label(row) for row in range(28)]
    assert (stalls.seats[0].guid, stalls.seats[-1].guid, circle.name) == ("stalls-A-1", "stalls-AB-3", "Circle, left")
    assert [category.name for category in read.categories] == ["Stalls", "Circle, left"]


def test_csv_limits_are_enforced() -> None:
    two = csv("A,1,1,0,0,Gold,", "B,1,1,0,0,Silver,")
    assert "more than 1 seats" in str(refusal(two, Limits(seats_max=1)))
    assert "more than 1 sections" in str(refusal(two, Limits(sections_max=1)))
    assert "more than 1 categories" in str(refusal(two, Limits(categories_max=1)))


# --- arbitrary input ----------------------------------------------------------------------------------------------

_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_parsed_or_refused(data: bytes) -> None:
    with suppress(PlanError):
        assert parse_plan(data).seat_count


@given(st.data())
def test_arbitrary_json_values_are_parsed_or_refused(data: st.DataObject) -> None:
    document: Any = plan([block("Stalls", 1, 2)])
    document["zones"][0]["areas"] = [{"shape": "text", "position": {"x": 0, "y": 0}, "text": {"text": "Bar"}}]
    target, at = document, data.draw(st.integers(0, 6))
    for _ in range(at):
        key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
        if not isinstance(target[key], dict | list) or not target[key]:
            break
        target = target[key]
    key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
    target[key] = data.draw(_anything)
    with suppress(PlanError):
        read = parse_plan(json.dumps(document).encode())
        assert read.seat_count or read.areas
