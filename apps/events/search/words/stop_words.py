"""Words that a query can do without, by language. They are still indexed, so that "The Who" is found."""

from apps.events.search.words.text import fold

_LISTS = {
    "ar": "في من على إلى عن مع و هذا هذه التي الذي ما لا أن",
    "da": "og i at det en den til er som på de med af for et",
    "de": "der die das den dem des ein eine einer eines einem einen und oder in im am an auf aus bei mit nach von "
    "vom zu zum zur für über unter ist sind war wird es wie",
    "el": "και το η ο οι τα του της των στο στη με για από",
    "en": "a an the and or of in on at to for from with by is are be it its this that as into near",
    "es": "el la los las un una unos unas y o de del en a al con por para es que se su",
    "fi": "ja on ei se että oli en",
    "fr": "le la les un une des du de d l et ou en dans à au aux avec pour par sur est que qui ce cette",
    "hu": "a az és egy van hogy nem is",
    "it": "il lo la i gli le un una uno e o di del della dei a al in con per da su è che",
    "nl": "de het een en of van in op aan met voor bij te is dat die",
    "no": "og i det en et den til er som på de med av for",
    "pt": "o a os as um uma e ou de do da dos das em no na com por para é que se",
    "ro": "și în la de un o cu pe din este că",
    "ru": "и в во не на с со по от до за из у о об для к",
    "sv": "och i att det en ett den till är som på de med av för",
    "tr": "ve bir bu da de ile için",
}
BY_LANGUAGE = {language: frozenset(fold(words).split()) for language, words in _LISTS.items()}
