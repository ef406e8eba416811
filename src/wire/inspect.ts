/** The name under which consoles look for how an object wants to be shown. */
export const inspect: unique symbol = /* @__PURE__ */ Symbol.for('nodejs.util.inspect.custom')
