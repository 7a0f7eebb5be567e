/** The front page: the visitor's request joins three others in an engine that runs in this page. */

import { Story } from "../front/story.ts";

const story = document.querySelector<HTMLElement>(".story");
if (story) new Story(story);
