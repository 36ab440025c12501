/* Wide characters on streams. */
#include "probe.h"
#include <locale.h>
#include <wchar.h>

static void probe(void) {
    printf("locale %d\n", setlocale(LC_ALL, "C.UTF-8") != NULL);
    FILE *out = fopen(at("f"), "w+");
    printf("fwide %d\n", fwide(out, 0));
    TRY((int)fputwc(L'a', out));
    printf("fwide %d\n", fwide(out, 0) > 0);
    TRY((int)putwc(L'\u00e4', out));
    TRY(fputws(L"\u20ac \U0001F600\n", out) >= 0);
    TRY(fwprintf(out, L"%d %ls %s %lc %.2f %d %d %d %d\n", 42, L"w\u00efde", "n\xc3\xa4rrow", L'\u03bb', 1.5, 1, 2, 3, 4));
    TRY(fflush(out));
    struct stat st;
    stat(at("f"), &st);
    printf("size %lld\n", (long long)st.st_size);
    rewind(out);
    wint_t first = fgetwc(out), second = getwc(out);
    printf("%x %x\n", first, second);
    TRY(ungetwc(second, out) == second);
    TRY(ungetwc(L'z', out) == L'z');
    printf("%x", fgetwc(out));
    printf(" %x\n", fgetwc(out));
    wchar_t line[64];
    printf("line %d %ls", fgetws(line, 64, out) == line, line);
    int number = 0;
    wchar_t word[32] = L"";
    char narrow[32] = "";
    TRY(fwscanf(out, L"%d %ls %s", &number, word, narrow));
    printf("%d %ls %s\n", number, word, narrow);
    wchar_t letter;
    double value;
    TRY(fwscanf(out, L" %lc %lf", &letter, &value));
    printf("%x %.2f\n", (unsigned)letter, value);
    TRY(fwscanf(out, L"%d", &number) == 1 && number == 1);
    TRY(fwscanf(out, L"%*[^\n]"));
    TRY(fgetwc(out) == L'\n');
    TRY((int)fgetwc(out) == (int)WEOF);
    printf("end %d\n", feof(out) != 0);
    TRY(fwscanf(out, L"%d", &number));
    TRY(fclose(out));
    /* What is no character. */
    put_file("bad", "ok\xff\xfe\n");
    FILE *bad = fopen(at("bad"), "r");
    TRY(fgetws(line, 64, bad) == NULL ? -1 : 0);
    printf("error %d\n", ferror(bad) != 0);
    fclose(bad);
    put_file("cut", "x\xe2\x82");
    FILE *cut = fopen(at("cut"), "r");
    TRY(fgetwc(cut) == L'x');
    TRY((int)fgetwc(cut));
    fclose(cut);
    /* A stream for bytes stays one for bytes. */
    FILE *bytes = fopen(at("f"), "r");
    printf("bytes %d\n", fwide(bytes, -1));
    printf("bytes %d\n", fwide(bytes, 1));
    fclose(bytes);
    /* Long lines, and more than is scanned at once. */
    FILE *big = fopen(at("big"), "w+");
    for (int i = 0; i < 40000; i++) fputwc(L'\u20ac', big);
    fwprintf(big, L" 77");
    rewind(big);
    TRY(fwscanf(big, L"%*ls %d", &number));
    printf("number %d\n", number);
    fclose(big);
    stat(at("big"), &st);
    printf("size %lld\n", (long long)st.st_size);
}
