"""`stretto page` writes the page that scripts/page has built. tests/page compares the page's figures with the command's."""
from program import ProgramTest, main


class Page(ProgramTest):
    def test_copies_the_page(self):
        self.write("page.html", "<!doctype html>\n<p>é</p>\n")
        environment = dict(self.environment, STRETTO_DATA=str(self.folder))
        self.ok("page", "out.html", environment=environment)
        self.assertEqual((self.folder / "out.html").read_bytes(), (self.folder / "page.html").read_bytes())

    def test_names_what_is_wrong(self):
        self.write("page.html", "<!doctype html>\n")
        environment = dict(self.environment, STRETTO_DATA=str(self.folder))
        self.fails(2, "page", "absent/out.html", environment=environment, says=["absent/out.html"])
        self.fails(2, "page", environment=environment, says=["FILE is required"])


if __name__ == "__main__":
    main()
