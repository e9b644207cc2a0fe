// The page at the door is a plain form without this.
