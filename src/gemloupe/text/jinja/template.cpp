#include "gemloupe/text/jinja/template.h"

#include <algorithm>
#include <optional>

#include "gemloupe/base/errors.h"
#include "gemloupe/text/jinja/builtins.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

constexpr int deepest = 1000;              // of nested evaluations: a macro that calls itself for ever ends here
constexpr int64_t most_steps = 5'000'000;  // about a second: a template that does not end ends here

/// The variables of a block; a name that is not here is looked for in the block around it.
struct Scope {
  const Scope* parent = nullptr;
  Members variables;

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      if (const Value* value = jinja::find(scope->variables, name)) return value;
    }
    return nullptr;
  }

  void set(const std::string& name, Value value) {
    const auto at = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
    if (at != variables.end()) {
      at->second = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }
};

enum class Flow { On, Break, Continue };

class Interpreter {
 public:
  explicit Interpreter(int& line) : line_(line) {}

  std::string run(const Block& block, Scope& scope) {
    std::string out;
    run(block, scope, out);
    return out;
  }

 private:
  // --- bounds ---

  void spend(size_t steps) {
    if ((steps_ += static_cast<int64_t>(steps)) > most_steps) throw Problem{"this template does too much work"};
  }

  struct Depth {
    Depth(Interpreter& i, int line) : interpreter(i) {
      interpreter.line_ = line;
      interpreter.spend(1);
      if (++interpreter.depth_ > deepest) throw Problem{"nested too deeply: does a macro call itself for ever?"};
    }
    ~Depth() { --interpreter.depth_; }
    Interpreter& interpreter;
  };

  void write(std::string& out, const std::string& text) {
    spend(text.size() / 64);
    out += text;
    if (out.size() > Value::most_bytes) throw Problem{"this template writes too much"};
  }

  // --- statements ---

  Flow run(const Block& block, Scope& scope, std::string& out) {
    for (const Statement& statement : block) {
      const Depth depth(*this, statement.line);
      if (const Flow flow = run(statement, scope, out); flow != Flow::On) return flow;
    }
    return Flow::On;
  }

  Flow run(const Statement& s, Scope& scope, std::string& out) {
    switch (s.kind) {
      case Statement::Text:
        write(out, s.text);
        break;
      case Statement::Output:
        write(out, evaluate(*s.expression, scope).text());
        break;
      case Statement::If:
        return run(evaluate(*s.expression, scope).truth() ? s.body : s.otherwise, scope, out);
      case Statement::For:
        return loop(s, scope, out);
      case Statement::Set:
        assign(s.targets, evaluate(*s.expression, scope), scope);
        break;
      case Statement::SetBlock:
        set_block(s, scope);
        break;
      case Statement::Macro:
        scope.set(s.text, macro(s, scope));
        break;
      case Statement::Scope: {
        Scope inner{&scope, {}};
        return run(s.body, inner, out);
      }
      case Statement::Break:
        return Flow::Break;
      case Statement::Continue:
        return Flow::Continue;
    }
    return Flow::On;
  }

  Flow loop(const Statement& s, Scope& scope, std::string& out) {
    List all = evaluate(*s.expression, scope).iterate();
    spend(8 * all.size());  // `loop` costs as much as several expressions
    if (s.condition) {
      std::erase_if(all, [&](const Value& element) {
        Scope inner{&scope, {}};
        assign(s.targets, element, inner);
        return !evaluate(*s.condition, inner).truth();
      });
    }
    if (all.empty()) return run(s.otherwise, scope, out);
    for (size_t i = 0; i < all.size(); ++i) {
      Scope inner{&scope, {}};
      assign(s.targets, all[i], inner);
      inner.set("loop", position(all, i));
      if (run(s.body, inner, out) == Flow::Break) break;
    }
    return Flow::On;
  }

  static Value position(const List& all, size_t i) {
    const auto number = [](size_t value) { return Value(static_cast<int64_t>(value)); };
    Members loop = {{"index", number(i + 1)},
                    {"index0", number(i)},
                    {"revindex", number(all.size() - i)},
                    {"revindex0", number(all.size() - i - 1)},
                    {"first", i == 0},
                    {"last", i + 1 == all.size()},
                    {"length", number(all.size())}};
    if (i > 0) loop.emplace_back("previtem", all[i - 1]);
    if (i + 1 < all.size()) loop.emplace_back("nextitem", all[i + 1]);
    return loop;
  }

  void assign(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
    if (targets.size() == 1) return assign(targets[0], value, scope);
    const List all = value.iterate();
    if (all.size() != targets.size()) {
      throw Problem{"expected " + std::to_string(targets.size()) + " values to assign, found " +
                    std::to_string(all.size())};
    }
    for (size_t i = 0; i < all.size(); ++i) assign(targets[i], all[i], scope);
  }

  void assign(const std::string& target, const Value& value, Scope& scope) {
    const size_t dot = target.find('.');
    if (dot == target.npos) return scope.set(target, value);
    const Value* object = scope.find(target.substr(0, dot));
    if (object == nullptr || !object->name_space())
      throw Problem{"'" + target.substr(0, dot) + "' is no namespace, so nothing can be set in it"};
    const std::string name = target.substr(dot + 1);
    if (name.starts_with('_')) throw Problem{"a namespace's attribute that begins with '_'"};
    (void)Value(List{value});  // neither a function nor another namespace
    Scope members{nullptr, std::move(object->name_space()->members)};
    members.set(name, value);
    object->name_space()->members = std::move(members.variables);
  }

  void set_block(const Statement& s, Scope& scope) {
    Scope inner{&scope, {}};
    std::string text;
    run(s.body, inner, text);
    inner.set("", std::move(text));
    assign(s.targets, s.expression ? evaluate(*s.expression, inner) : *inner.find(""), scope);
  }

  /// A macro lives no longer than the scope that it stands in: functions cannot be put anywhere else.
  Value macro(const Statement& s, Scope& scope) {
    return Function([this, &s, &scope](const Arguments& arguments) -> Value {
      if (arguments.positional.size() > s.parameters.size())
        throw Problem{"the macro '" + s.text + "' takes " + std::to_string(s.parameters.size()) + " arguments"};
      for (const auto& given : arguments.named) {
        const auto is_it = [&](const auto& parameter) { return parameter.first == given.first; };
        if (std::none_of(s.parameters.begin(), s.parameters.end(), is_it))
          throw Problem{"the macro '" + s.text + "' has no parameter '" + given.first + "'"};
      }
      Scope inner{&scope, {}};
      for (size_t i = 0; i < s.parameters.size(); ++i) {
        const auto& [name, otherwise] = s.parameters[i];
        const Value* given = arguments.get(i, name);
        inner.set(name, given ? *given : otherwise ? evaluate(*otherwise, inner) : Undefined{name});
      }
      return run(s.body, inner);
    });
  }

  // --- expressions ---

  Value evaluate(const Expression& e, const Scope& scope) {
    const Depth depth(*this, e.line);
    Value value = compute(e, scope);
    spend(value.bytes() / 64);
    return value;
  }

  Value part(const Expression& e, size_t i, const Scope& scope) {
    return i < e.parts.size() && e.parts[i] ? evaluate(*e.parts[i], scope) : None{};
  }

  Value compute(const Expression& e, const Scope& scope) {
    switch (e.kind) {
      case Expression::Constant:
        return e.value;
      case Expression::Variable: {
        const Value* value = scope.find(e.name);
        return value ? *value : Undefined{e.name};
      }
      case Expression::ListOf:
        return arguments(e, 0, scope).positional;
      case Expression::DictOf:
        return dict(e, scope);
      case Expression::Attribute:
        return attribute(part(e, 0, scope), e.name);
      case Expression::Item:
        return item(part(e, 0, scope), part(e, 1, scope));
      case Expression::Slice:
        return slice(part(e, 0, scope), part(e, 1, scope), part(e, 2, scope), part(e, 3, scope));
      case Expression::Call:
        return call(e, scope);
      case Expression::Filter:
        return apply_filter(e.name, part(e, 0, scope), arguments(e, 1, scope));
      case Expression::Test:
        return apply_test(e.name, part(e, 0, scope), arguments(e, 1, scope));
      case Expression::Unary:
        return unary(e.name, part(e, 0, scope));
      case Expression::Binary:
        return binary(e, scope);
      case Expression::Compare:
        return compare(e, scope);
      case Expression::Condition: {
        const bool holds = part(e, 0, scope).truth();
        return holds ? part(e, 1, scope) : e.parts[2] ? part(e, 2, scope) : Value(Undefined{"the other case of an if"});
      }
    }
    return {};
  }

  Arguments arguments(const Expression& e, size_t from, const Scope& scope) {
    Arguments all;
    for (size_t i = from; i < e.parts.size(); ++i) all.positional.push_back(evaluate(*e.parts[i], scope));
    for (const auto& [name, value] : e.named) all.named.emplace_back(name, evaluate(*value, scope));
    return all;
  }

  Value dict(const Expression& e, const Scope& scope) {
    Scope members;
    for (const auto& [key, value] : e.named) members.set(key, evaluate(*value, scope));  // the last of two wins
    return std::move(members.variables);
  }

  Value call(const Expression& e, const Scope& scope) {
    const Value callee = part(e, 0, scope);
    if (callee.undefined())
      throw Problem{"'" + callee.as<Undefined>()->name + "' is undefined, or a function that is not implemented"};
    if (!callee.function()) throw Problem{std::string("cannot call ") + callee.type()};
    const Arguments given = arguments(e, 1, scope);
    const int line = line_;
    Value result = (*callee.function())(given);
    line_ = line;
    return result;
  }

  static Value unary(const std::string& op, const Value& value) {
    if (op == "not") return !value.truth();
    if (!value.number()) throw Problem{"'" + op + "' of " + value.type()};
    if (const double* real = value.as<double>()) return op == "-" ? -*real : *real;
    return arithmetic(op, int64_t{0}, value);
  }

  Value binary(const Expression& e, const Scope& scope) {
    Value left = part(e, 0, scope);
    if (e.name == "and" || e.name == "or") return left.truth() == (e.name == "or") ? left : part(e, 1, scope);
    return arithmetic(e.name, left, part(e, 1, scope));
  }

  Value compare(const Expression& e, const Scope& scope) {
    Value left = part(e, 0, scope);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      Value right = part(e, i + 1, scope);
      spend((left.bytes() + right.bytes()) / 64);
      if (!holds(e.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  static bool holds(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    if (op == "<") return less(a, b);
    if (op == ">") return less(b, a);
    return op == "<=" ? !less(b, a) : !less(a, b);
  }

  int& line_;
  int depth_ = 0;
  int64_t steps_ = 0;
};

[[noreturn]] void refuse(int line, const Problem& problem) {
  throw BadTokenizer("the chat template, line " + std::to_string(line) + ": " + problem.message);
}

}  // namespace

Template::Template(std::string_view source) {
  int line = 1;
  try {
    block_ = parse(source, line);
  } catch (const Problem& problem) {
    refuse(line, problem);
  }
}

std::string Template::render(const json& variables) const {
  int line = 1;
  try {
    Scope global{nullptr, globals()};
    for (const auto& [name, value] : variables.items()) global.set(name, Value::from_json(value));
    Scope top{&global, {}};
    return Interpreter(line).run(block_, top);
  } catch (const Problem& problem) {
    refuse(line, problem);
  }
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
