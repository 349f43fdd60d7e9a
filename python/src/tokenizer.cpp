#include "gemloupe/text/tokenizer.h"

#include "bindings.h"
#include "gemloupe/model.h"
#include "gemloupe/text/chat.h"

namespace gemloupe {
inline namespace v0 {
namespace {

py::tuple encode(const Tokenizer& tokenizer, const py::str& text, bool add_special_tokens) {
  std::string bytes = utf8_of(text);
  Encoding encoding;
  std::vector<Range> offsets;
  {
    py::gil_scoped_release unlocked;
    encoding = tokenizer.encode(bytes, add_special_tokens);
    offsets = code_point_ranges(bytes, encoding.offsets);
  }
  return py::make_tuple(encoding.ids, offsets);
}

/// A vocabulary out of a file may hold bytes that are no text.
py::str lenient(const std::string& bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

}  // namespace

void bind_tokenizer(py::module_& m) {
  py::class_<Tokenizer>(m, "Tokenizer")
      .def_static(
          "of", [](const Model& model) { return model.tokenizer(); }, py::call_guard<py::gil_scoped_release>())
      .def("encode", &encode)
      .def("decode",
           [](const Tokenizer& t, const std::vector<int64_t>& ids, bool skip) { return lenient(t.decode(ids, skip)); })
      .def("id_to_token",
           [](const Tokenizer& t, int64_t id) -> py::object {
             auto token = std::optional<std::string>(t.id_to_token(id));
             return token ? py::object(lenient(*token)) : py::object(py::none());
           })
      .def("token_to_id", &Tokenizer::token_to_id)
      .def("is_special", &Tokenizer::is_special)
      .def_property_readonly("size", &Tokenizer::size)
      .def_property_readonly("end_id", &Tokenizer::end_id)
      .def_property_readonly("special",
                             [](const Tokenizer& t) {
                               const SpecialIds& s = t.special();
                               py::dict out;
                               out["bos"] = s.bos;
                               out["eos"] = s.eos;
                               out["pad"] = s.padding;
                               out["unk"] = s.unknown;
                               return out;
                             })
      .def_property_readonly("prefix", &Tokenizer::prefix)
      .def_property_readonly("suffix", &Tokenizer::suffix)
      .def_property_readonly("added_tokens",
                             [](const Tokenizer& t) {
                               std::vector<std::tuple<int64_t, std::string, bool>> out;
                               for (const AddedToken& token : t.added_tokens())
                                 out.emplace_back(token.id, token.content, token.special);
                               return out;
                             })
      .def("special_token_texts", [](const Tokenizer& t) { return to_python(special_token_texts(t)); });
  m.def("render_chat", [](const std::string& text, const py::object& messages, const py::object& options) {
    return render_chat(text, from_python(messages), from_python(options));
  });
  m.def("chat_template", [](const Model& model) { return model.tokenizer_files().chat_template; });
}

}  // namespace v0
}  // namespace gemloupe
