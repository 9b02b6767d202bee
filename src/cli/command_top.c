/* command_top.c -- impel top: the groups of a store, live, on a terminal; or once, for pipes.
 *
 * One thread: it asks the store, draws, and waits for a key until it is time to ask again. Asking
 * takes at most a quarter of the time: a store where it takes long is asked less often. What is shown
 * is made in top.c; here is the screen alone, by curses. */
#include "cli/command.h"
#include "cli/top.h"

#include <curses.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SHARE_MAX = 4, /* a gathering takes at most one part in four of the time */
    LOG_NOTHING = 4,
    KEY_ESCAPE = 27,
    KEY_DELETE = 127,
    WORKERS_LEAST = 4, /* lines that are left for workers, if there are so many */
    FRAME_LINES = 6,   /* title, summary, heading, line, reason, keys */
};

struct screen {
    struct top *top;
    const struct options *options;
    size_t first; /* the row at the top of the list */
    bool typing;  /* the filter is being typed */
    bool paused;
    bool help;
};

/* ---- drawing ---- */

static attr_t attribute(enum console_style style)
{
    static const struct {
        attr_t plain;
        short pair;
    } table[] = {
        [STYLE_PLAIN] = {A_NORMAL, 0}, [STYLE_BOLD] = {A_BOLD, 0},   [STYLE_DIM] = {A_DIM, 0},
        [STYLE_GOOD] = {A_NORMAL, 1},  [STYLE_WARN] = {A_NORMAL, 2}, [STYLE_BAD] = {A_BOLD, 3},
        [STYLE_END] = {A_NORMAL, 0},
    };
    return table[style].plain |
           (has_colors() && table[style].pair > 0 ? (attr_t)COLOR_PAIR(table[style].pair) : 0);
}

static void draw(int y, const char *text, attr_t attributes)
{
    if (y < 0 || y >= LINES) {
        return;
    }
    move(y, 0);
    clrtoeol();
    attrset(attributes);
    addnstr(text, (int)top_cut(text, (size_t)COLS));
    if ((attributes & A_REVERSE) != 0) {
        for (size_t at = top_width(text); at < (size_t)COLS; at++) {
            addch(' ');
        }
    }
    attrset(A_NORMAL);
}

static void draw_line(int y, const struct top_line *line, attr_t more)
{
    draw(y, line->text, attribute(line->style) | more);
}

static void draw_title(const struct screen *screen)
{
    char text[512], clock[32], every[DURATION_TEXT_SIZE];
    time_t now = time(NULL);
    struct tm local;

    if (localtime_r(&now, &local) == NULL ||
        strftime(clock, sizeof(clock), "%H:%M:%S", &local) == 0) {
        clock[0] = '\0';
    }
    (void)snprintf(text, sizeof(text), "impel top  %s  %s%s  by %s%s%s%s", clock,
                   screen->paused ? "paused" : "every ",
                   screen->paused ? "" : duration_format(screen->options->interval_ms, every),
                   top_sort_name(screen->top->sort), screen->top->reverse ? ", reversed" : "",
                   screen->top->filter[0] != '\0' ? "  only " : "", screen->top->filter);
    draw(0, text, A_BOLD);
}

static void draw_foot(const struct screen *screen)
{
    char text[512];

    if (screen->typing) {
        (void)snprintf(text, sizeof(text), "filter: %s_", screen->top->filter);
        draw(LINES - 1, text, A_BOLD);
    } else if (screen->top->error[0] != '\0') {
        (void)snprintf(text, sizeof(text), "old numbers: %s", screen->top->error);
        draw(LINES - 1, text, attribute(STYLE_BAD));
    } else if (screen->top->now.refused.count > 0) {
        (void)snprintf(text, sizeof(text), "not shown: %s", screen->top->now.refused.texts[0]);
        draw(LINES - 1, text, attribute(STYLE_BAD));
    } else {
        draw(LINES - 1, "q quit  s sort  r reverse  / filter  p pause  up/down choose  h help",
             A_DIM);
    }
}

/* The chosen group: why it is called what it is, and its workers. */
static void draw_chosen(const struct screen *screen, int y)
{
    const struct top *top = screen->top;
    struct top_line line = {.style = STYLE_PLAIN};
    char name[64];

    if (top->row_count == 0) {
        draw(y,
             top->filter[0] != '\0' ? "  nothing matches the filter" : "  no group in this store",
             A_NORMAL);
        return;
    }
    const struct top_row *row = &top->rows[top->chosen_at];
    (void)snprintf(line.text, sizeof(line.text), "%s: %s",
                   bytes_quote(row->group->name, name, sizeof(name)), row->group->reason);
    line.style = row->group->health >= HEALTH_UNKNOWN ? STYLE_BAD : STYLE_PLAIN;
    draw_line(y++, &line, 0);
    size_t room = LINES - 1 > y ? (size_t)(LINES - 1 - y) : 0;
    size_t shown = row->group->worker_count <= room ? row->group->worker_count : room;
    if (shown < row->group->worker_count && shown > 0) {
        shown--;
    }
    for (size_t i = 0; i < shown; i++) {
        top_worker_line(&row->group->workers[i], &line);
        draw_line(y++, &line, 0);
    }
    if (shown < row->group->worker_count && room > 0) {
        (void)snprintf(line.text, sizeof(line.text), "  and %zu more",
                       row->group->worker_count - shown);
        line.style = STYLE_DIM;
        draw_line(y, &line, 0);
    }
}

static void draw_help(void)
{
    static const char *const lines[] = {
        "UNREAD  entries that the group was not given yet, counted (? = unknown)",
        "PEND    entries that a consumer holds and has not acknowledged",
        "DONE/S  acknowledged or parked, in a second",
        "OLDEST  how long the first pending entry has been idle",
        "PARKED  records in the dead-letter stream: impel dead list",
        "ALIVE   workers that beat, of all consumers",
        "",
        "ok  recovering (live workers are about to take over)  unknown (nobody",
        "beats, so nobody can be called dead)  attention (somebody should act)",
        "",
        "s  next order   S  the one before   r  reverse   /  show only names",
        "with a text (Esc ends it)   p  pause   space  ask now   q  quit",
        "up, down, page up, page down, j, k  choose a group: below stand the",
        "reason for its health and its workers",
    };

    erase();
    for (int i = 0; i < (int)ARRAY_SIZE(lines); i++) {
        draw(i + 1, lines[i], A_NORMAL);
    }
    draw(LINES - 1, "any key goes back", A_DIM);
}

static void draw_rows(struct screen *screen, int y, size_t room)
{
    const struct top *top = screen->top;
    struct top_line line;

    if (top->chosen_at < screen->first) {
        screen->first = top->chosen_at;
    } else if (room > 0 && top->chosen_at >= screen->first + room) {
        screen->first = top->chosen_at - room + 1;
    }
    if (screen->first + room > top->row_count) { /* the screen has grown */
        screen->first = top->row_count > room ? top->row_count - room : 0;
    }
    for (size_t i = 0; i < room && screen->first + i < top->row_count; i++) {
        top_row_line(&top->rows[screen->first + i], &line);
        draw_line(y + (int)i, &line, screen->first + i == top->chosen_at ? A_REVERSE : 0);
    }
}

static void draw_all(struct screen *screen)
{
    struct top_line line;
    size_t lines = LINES > FRAME_LINES ? (size_t)(LINES - FRAME_LINES) : 1;
    size_t workers = screen->top->row_count == 0
                         ? 0
                         : screen->top->rows[screen->top->chosen_at].group->worker_count;
    size_t least = workers < WORKERS_LEAST ? workers : WORKERS_LEAST;
    size_t room = lines > least + 1 ? lines - least : lines;

    if (screen->help) {
        draw_help();
        refresh();
        return;
    }
    room = room < screen->top->row_count ? room : screen->top->row_count;
    erase();
    draw_title(screen);
    top_summary(screen->top, &line);
    draw_line(1, &line, 0);
    top_heading(screen->top, &line);
    draw_line(2, &line, 0);
    draw_rows(screen, 3, room);
    mvhline(3 + (int)room, 0, ACS_HLINE, COLS);
    draw_chosen(screen, 4 + (int)room);
    draw_foot(screen);
    refresh();
}

/* ---- keys ---- */

static void type_filter(struct screen *screen, int key)
{
    char *filter = screen->top->filter;
    size_t size = strlen(filter);

    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        screen->typing = false;
    } else if (key == KEY_ESCAPE) {
        screen->typing = false;
        filter[0] = '\0';
    } else if ((key == KEY_BACKSPACE || key == KEY_DELETE || key == '\b') && size > 0) {
        do {
            filter[--size] = '\0'; /* a whole character, of however many bytes */
        } while (size > 0 && ((unsigned char)filter[size] & 0xc0) == 0x80);
    } else if (key >= ' ' && key < 256 && key != KEY_DELETE && size + 1 < TOP_TEXT_MAX) {
        filter[size] = (char)key;
        filter[size + 1] = '\0';
    }
}

/* False: it is over. `*ask` is set when the store is to be asked at once. */
static bool take_key(struct screen *screen, int key, bool *ask)
{
    struct top *top = screen->top;
    long page = LINES > FRAME_LINES + WORKERS_LEAST ? LINES - FRAME_LINES - WORKERS_LEAST : 1;

    if (screen->help) {
        screen->help = false;
        return true;
    }
    if (screen->typing) {
        type_filter(screen, key);
        return true;
    }
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case 's':
        top->sort = (top->sort + 1) % TOP_SORTS;
        break;
    case 'S':
        top->sort = (top->sort + TOP_SORTS - 1) % TOP_SORTS;
        break;
    case 'r':
        top->reverse = !top->reverse;
        break;
    case '/':
        screen->typing = true;
        break;
    case KEY_ESCAPE:
        top->filter[0] = '\0';
        break;
    case 'p':
        screen->paused = !screen->paused;
        break;
    case ' ':
        *ask = true;
        break;
    case 'h':
    case '?':
        screen->help = true;
        break;
    case KEY_UP:
    case 'k':
        top_move(top, -1);
        break;
    case KEY_DOWN:
    case 'j':
        top_move(top, 1);
        break;
    case KEY_PPAGE:
        top_move(top, -page);
        break;
    case KEY_NPAGE:
        top_move(top, page);
        break;
    default: /* KEY_RESIZE too: all is drawn anew */
        break;
    }
    return true;
}

/* ---- the two ways ---- */

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

/* The next key, or ERR if none came for so long. `over`: none will ever come, the terminal is gone. */
static int next_key(int wait_ms, bool *over)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int key;

    timeout(0);
    key = getch(); /* what was read ahead, or a new size of the screen */
    if (key == ERR && poll(&input, 1, wait_ms) > 0) {
        key = getch();
        *over = key == ERR;
    }
    return key;
}

/* Keys until it is time to ask the store again: 1 = ask, 0 = quit. */
static int wait_keys(struct screen *screen, int64_t until_ms)
{
    bool ask = false, over = false;

    for (;;) {
        int64_t left_ms = until_ms - clock_now_ms();
        if (!top_arrange(screen->top)) {
            return IMPEL_ERR_NOMEM;
        }
        draw_all(screen);
        if (ask || (left_ms <= 0 && !screen->paused)) {
            return 1;
        }
        int key = next_key(screen->paused || left_ms > 1000 ? 1000 : (int)left_ms, &over);
        if (over || (key != ERR && !take_key(screen, key, &ask))) {
            return 0;
        }
    }
}

static int run_screen(struct top *top,
                      struct store *store,
                      const struct options *options,
                      struct impel_error *err)
{
    struct screen screen = {.top = top, .options = options};
    /* Not initscr: that ends the program where it does not know the terminal. */
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    int rc = 1;

    if (terminal == NULL) {
        const char *name = getenv("TERM");
        char quoted[64];
        bytes_quote(bytes_of(name == NULL ? "" : name), quoted, sizeof(quoted));
        return error_set(err, IMPEL_ERR_UNSUPPORTED,
                         "the terminal '%s' of $TERM is not known here: set TERM=xterm, or use "
                         "--once",
                         quoted);
    }
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    (void)curs_set(0);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_GREEN, -1);
        init_pair(2, COLOR_YELLOW, -1);
        init_pair(3, COLOR_RED, -1);
    }
    while (rc > 0) {
        int64_t begun_ms = clock_now_ms();
        (void)top_gather(top, store, options);
        int64_t took_ms = clock_now_ms() - begun_ms;
        int64_t pause_ms =
            options->interval_ms > took_ms * SHARE_MAX ? options->interval_ms : took_ms * SHARE_MAX;
        rc = wait_keys(&screen, begun_ms + pause_ms);
    }
    endwin();
    delscreen(terminal);
    return rc < 0 ? no_memory(err) : IMPEL_OK;
}

/* Two gatherings, so that there are rates, and the rows as plain text. */
static int print_once(struct top *top,
                      struct store *store,
                      const struct options *options,
                      struct impel_error *err)
{
    struct timespec pause = {.tv_sec = options->interval_ms / 1000,
                             .tv_nsec = options->interval_ms % 1000 * 1000000};
    struct top_line line;

    for (int i = 0; i < 2; i++) {
        if (!top_gather(top, store, options)) {
            return error_set(err, IMPEL_ERR_IO, "%s", top->error);
        }
        if (i == 0) {
            nanosleep(&pause, NULL);
        }
    }
    if (!top_arrange(top)) {
        return no_memory(err);
    }
    if (top->now.stream_count == 0 && status_tell_refused(&top->now)) {
        return EXIT_FAILED;
    }
    top_summary(top, &line);
    console_outf("%s\n", line.text);
    top_heading(top, &line);
    console_outf("%s\n", line.text);
    for (size_t i = 0; i < top->row_count; i++) {
        top_row_line(&top->rows[i], &line);
        console_outf("%s\n", line.text);
    }
    return status_tell_refused(&top->now) ? EXIT_FAILED : EXIT_DONE;
}

int command_top(struct options *options, struct impel_error *err)
{
    struct top top = {0};
    struct store *store = NULL;
    int rc;

    if (!options->once && (!console_is_terminal(0) || !console_is_terminal(1))) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "standard %s is no terminal: --once prints the numbers there",
                         console_is_terminal(1) ? "input" : "output");
    }
    if (!options->once) {
        options->log_level = LOG_NOTHING; /* the store's events would tear the screen */
    }
    setlocale(LC_CTYPE, "");
    rc = session_open_existing(options, &store, err);
    if (rc >= 0) {
        rc = (options->once ? print_once : run_screen)(&top, store, options, err);
    }
    top_release(&top);
    store_close(store);
    return rc;
}
